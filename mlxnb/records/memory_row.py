"""The row of the memory's frame."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """What an engine holds, what it may hold, and what the system has left; all of it in bytes.

    ``kv_bytes`` are pools and live caches, ``snapshots_bytes`` checkpoints of states and windows;
    both together may be ``limit_bytes`` now, and ``budget_bytes`` when the system is not short.
    ``pool_bytes`` are buffers that MLX keeps for the next step. Of the ``available_bytes`` that
    the system has, ``reserve_bytes`` are left to others.
    """

    weights_bytes: int
    kv_bytes: int
    snapshots_bytes: int
    pool_bytes: int
    limit_bytes: int
    budget_bytes: int
    available_bytes: int
    reserve_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes that the engine holds in all."""
        return self.weights_bytes + self.kv_bytes + self.snapshots_bytes + self.pool_bytes
