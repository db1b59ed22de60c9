"""An engine between requests: nothing is in use, all adds up."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from mlxnb import mlxlm
from mlxnb.cache.paged_space import PagedSpace, table_of
from mlxnb.cache.pool import SLAB
from mlxnb.cache.store import PrefixCache
from mlxnb.sessions.local import LocalEngine


@contextmanager
def held(engine: LocalEngine) -> Iterator[None]:
    """Nothing is computed inside of the block: what is sent there begins together after it."""
    going, free = threading.Event(), threading.Event()

    def wait() -> None:
        going.set()
        assert free.wait(60)

    holder = threading.Thread(target=lambda: engine.core.owner.call(wait))
    holder.start()
    going.wait()
    try:
        yield
    finally:
        free.set()
        holder.join()


def assert_settled(engine: LocalEngine) -> None:
    """Between requests: nothing is in use, all adds up, and the budget is held but for pins."""
    engine.core.owner.call(lambda: _assert_settled(engine.core.store))


def _assert_settled(store: PrefixCache) -> None:
    assert store.faults == 0
    pinned = any(b.pinned for b in store.index) or any(live.pinned for live in store.lives())
    assert pinned or store.nbytes <= store.budget
    for live in store.lives():
        assert not (live.running or live.pins or live.claimed), live.id
        assert live.caches is not None
        assert mlxlm.lengths(live.caches) <= {live.length}
        paged = live.pages is not None
        assert live.reserved == (0 if paged else mlxlm.nbytes(live.caches))
    for space in store.spaces():
        blocks = space.blocks
        users = Counter(blocks.keys())
        users.update(slot for live in space.lives for slot in table_of(live))
        if isinstance(space, PagedSpace):
            space.pages.reap()
            assert all(space.pages.holders(slot) == count for slot, count in users.items())
        assert len(users) + space.pool.free == space.pool.slabs * SLAB
        for slot, block in blocks.items():
            assert block.slot == slot and not block.refs and not block.dropped
            assert store.index.get(block.id) is block
            assert block.parent is not None and block.parent.children[block.tokens] is block
    assert len(store.index) == sum(len(space.blocks) for space in store.spaces())
