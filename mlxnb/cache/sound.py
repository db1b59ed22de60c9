"""Whether KV is made of numbers, and what goes when a sequence's is not."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.cache.index import Block
from mlxnb.cache.live import Live
from mlxnb.cache.pool import BLOCK, SLAB, Run
from mlxnb.cache.space import Space
from mlxnb.records.tokens import WIDTH

STRETCH = SLAB * BLOCK
"""Tokens that are looked at together."""


def is_sound(space: Space, live: Live, start: int) -> bool:
    """Whether all that a sequence holds after its first ``start`` tokens is numbers."""
    if _first_unsound(space, live, start - start % BLOCK) is not None:
        return False
    return not space.anchored or _finite(mlxlm.freeze(live.caches or []).stacks)


def condemn(space: Space, live: Live) -> int:
    """Drop a sequence whose logits were no numbers, and what others may have of its KV.

    Blocks and hot caches go from where it is unsound, pinned or not; all blocks behind them too.
    What a request that waits relies on stays: that one will end as this one did. Checkpoints on
    its way go without a look: they are soon made again.

    Returns
    -------
    int
        How many of its tokens are sound.
    """
    tokens, root = bytes(live.tokens), live.root
    first = _first_unsound(space, live, 0)
    space.drop(live)
    for checkpoint in space.marks(root, tokens):
        if not checkpoint.refs:
            space.forget(checkpoint)
    if first is None and not space.anchored:
        return len(tokens) // WIDTH
    length = first or 0
    for other in [o for o in space.lives if o.idle and o.root is root]:
        if other.shares(tokens) > length:
            space.drop(other)
    blocks = space.index.match(root, tokens, len(tokens) // WIDTH).blocks()
    unsound = next((block for block in blocks if block.end > length), None)
    if unsound is not None:
        _take_out(space, unsound)
    return length


def _first_unsound(space: Space, live: Live, start: int) -> int | None:
    """The first token at which some key or value is no number; None: there is none."""
    if live.caches is None:
        return None
    for first in range(start, live.length, STRETCH):
        sound = _finite_tokens(space.read(live, first, min(live.length, first + STRETCH)))
        if not all(sound):
            return first + sound.index(False)
    return None


def _finite_tokens(run: Run) -> list[bool]:
    """For each token whether its keys and values, ``(heads, tokens, dim)``, are numbers."""
    each = [mx.isfinite(array).all(axis=(0, 2)) for pair in run for array in pair]
    found: Any = mx.stack(each).all(axis=0).tolist() if each else []
    return list(found)


def _take_out(space: Space, block: Block) -> None:
    """Take a block out of the index with all behind it, as far as nobody relies on it."""
    for each in reversed(block.branch()):
        if not (each.children or each.refs):
            each.pinned = False
            space.remove(each)


def _finite(arrays: list[mx.array]) -> bool:
    """Whether these hold numbers alone."""
    return all(bool(mx.isfinite(array).all().item()) for array in arrays)
