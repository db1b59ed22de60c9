"""What would go next, and what is to go because somebody wants it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from mlxnb.cache.checkpoint import Checkpoint
from mlxnb.cache.index import Block
from mlxnb.cache.live import Live
from mlxnb.cache.space import Space
from mlxnb.errors import InvalidOption

Item = Block | Live | Checkpoint


def eviction_order(spaces: list[Space], checkpoints: list[Checkpoint]) -> list[str]:
    """Ids of what can go, in the order in which it would if nothing was used meanwhile.

    Least recently used first, a block after all that stand behind it.
    """
    waiting: list[tuple[int, str, Item]] = [(c.stamp, c.id, c) for c in checkpoints if not c.used]
    behind: dict[str, int] = {}
    for space in spaces:
        waiting += [(live.stamp, live.id, live) for live in space.hot()]
        for block in space.blocks.values():
            behind[block.id] = len(block.children)
            if not behind[block.id] and _is_free(block):
                waiting.append((block.stamp, block.id, block))
    heapq.heapify(waiting)
    return list(_drained(waiting, behind))


def _drained(waiting: list[tuple[int, str, Item]], behind: dict[str, int]) -> Iterator[str]:
    while waiting:
        _, name, item = heapq.heappop(waiting)
        yield name
        parent = item.parent if isinstance(item, Block) else None
        if parent is None or parent.id not in behind:
            continue
        behind[parent.id] -= 1
        if not behind[parent.id] and _is_free(parent):
            heapq.heappush(waiting, (parent.stamp, parent.id, parent))


def _is_free(block: Block) -> bool:
    return not (block.refs or block.pinned)


def check_free(item: Live | Checkpoint) -> None:
    """Raise ``InvalidOption`` if something is in use, or pinned."""
    used = item.pins or not item.idle if isinstance(item, Live) else item.refs
    if used or item.pinned:
        told = "is in use" if used else "is pinned; let it go first"
        raise InvalidOption(f"{item.id} cannot go: it {told}")


def free_branch(block: Block) -> list[Block]:
    """A block and all that stand behind it, which can be taken out from the last one on.

    Raises
    ------
    InvalidOption
        One of them is in use, or pinned.
    """
    found = block.branch()
    if any(each.refs for each in found):
        raise InvalidOption(f"the block {block.id} cannot go: it, or one behind it, is in use")
    if any(each.pinned for each in found):
        raise InvalidOption(f"the block {block.id} cannot go: it, or one behind it, is pinned")
    return found
