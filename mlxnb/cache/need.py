"""What a sequence takes by itself, before anything of it is there."""

from __future__ import annotations

from mlxnb.cache.live import whole_steps
from mlxnb.cache.pool import BLOCK, SLAB
from mlxnb.cache.space import Space


def least_bytes(space: Space, tokens: int) -> int:
    """Bytes of KV without which a sequence of ``tokens`` tokens cannot be; states do not count."""
    if space.paged:
        blocks = -(-tokens // BLOCK)
        return -(-blocks // SLAB) * space.pool.slab_bytes
    return whole_steps(tokens) * space.pool.token_bytes
