"""How the memory of a machine is shared out: to weights, KV, MLX's free pool, and to others."""

from __future__ import annotations

from mlxnb.models.memory import memory_bytes

MIB = 2**20


def default_budget(weights: int) -> int:
    """Bytes for KV beside ``weights`` bytes of weights.

    A host's total is 0.85 of the memory (of a container's limit, where there is one), or of what
    the device recommends to use. KV gets what weights and MLX's free pool leave of it, a quarter
    of the memory at the most, 256 MiB at the least.
    """
    import mlx.core as mx

    memory = memory_bytes()
    working_set = int(mx.device_info().get("max_recommended_working_set_size") or memory)
    total = int(0.85 * min(memory, working_set))
    return max(256 * MIB, min(memory // 4, total - weights - pool_bytes(memory)))


def pool_bytes(memory: int) -> int:
    """Bytes of freed buffers that MLX may keep: a sixteenth of the memory, 1 GiB at the most.

    It reuses them for the activations of the next step, which are a few hundred MiB for a chunk
    of 2,048 tokens of an 8B model. After a chunk they are given back in any case.
    """
    return min(1024 * MIB, memory // 16)


def reserve_bytes(memory: int) -> int:
    """Bytes that are left to others: 5 % of the memory, between 512 MiB and 2 GiB.

    The system is looked at once a second, and other programs do not ask before they allocate:
    this is what they may take from one look to the next, and what a chunk's activations take.
    Of a small container it is an eighth at the most.
    """
    return min(memory // 8, max(512 * MIB, min(2048 * MIB, memory // 20)))


def limit_pool() -> None:
    """Hold MLX's free pool to its part of the total; a limit that is lower already stays.

    By default MLX keeps all that it ever freed on Metal, and 32 MiB on a CPU.
    """
    import mlx.core as mx

    ours = pool_bytes(memory_bytes())
    before = mx.set_cache_limit(ours)
    if before < ours:
        mx.set_cache_limit(before)
