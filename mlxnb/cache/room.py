"""The byte budget of a host's KV: what is held, and what goes when more is wanted."""

from __future__ import annotations

import logging
import threading

from mlxnb import mlxlm
from mlxnb.cache.index import Block, PrefixIndex, Slot
from mlxnb.cache.live import Live, whole_steps
from mlxnb.cache.paged_space import PagedSpace
from mlxnb.cache.pool import BLOCK, SLAB
from mlxnb.cache.space import Space

log = logging.getLogger(__name__)


class NoRoom(Exception):
    """The budget has no room for now: what is there is in use or pinned."""


class Room:
    """Pools and live caches of all models under one budget.

    Blocks go leaf-first and least recently used first, hot caches in the same order; what is in
    use or pinned stays. ``lock`` guards all of it and the index; arrays are touched on the
    engine's thread alone.

    Parameters
    ----------
    budget
        Bytes that all of it may hold.
    """

    def __init__(self, budget: int, index: PrefixIndex, spaces: dict[str, Space]) -> None:
        self.lock = threading.RLock()
        self.budget = budget
        self._index = index
        self._spaces = spaces

    @property
    def nbytes(self) -> int:
        """Bytes held by pools and live caches."""
        return sum(space.nbytes for space in self._spaces.values())

    def make(self, need: int) -> None:
        """Evict until ``need`` more bytes fit.

        Raises
        ------
        NoRoom
            They would not, whatever is evicted; then nothing is.
        """
        with self.lock:
            if self.nbytes + need <= self.budget:
                return
            kept = self.nbytes - sum(space.evictable() for space in self._spaces.values())
            if kept + need > self.budget:
                raise NoRoom(
                    f"{need:,} bytes more do not fit: {kept:,} of {self.budget:,} are in use or "
                    "pinned"
                )
            while self.nbytes + need > self.budget:
                if not (self._compact() or self._evict_one()):
                    raise NoRoom(f"{need:,} bytes more do not fit the budget of {self.budget:,}")

    def shrink(self) -> None:
        """Hold the budget, as far as what is in use allows it."""
        with self.lock:
            while self.nbytes > self.budget:
                if not (self._compact() or self._evict_one()):
                    log.warning("the prefix cache is over its budget: all that is left is in use")
                    return

    # --- what sequences ask for ---------------------------------------------------------------

    def reserve(self, live: Live, tokens: int, kept: int | None = None) -> None:
        """Let a sequence grow to ``tokens`` tokens, or raise ``NoRoom``.

        Does nothing where the size of a model's KV is not known beforehand; see ``count``.
        ``kept`` is how many tokens it is about to begin with, if not with all that it has.
        """
        space = self._spaces.get(live.key)
        if isinstance(space, PagedSpace):
            self._reserve_slots(space, live, tokens, kept)
            return
        if tokens <= live.capacity or not live.token_bytes:
            return
        wanted = live.bytes_for(tokens)
        with self.lock:
            live.guards += 1
            try:
                self.make(wanted - live.reserved)
            finally:
                live.guards -= 1
            live.capacity, live.reserved = whole_steps(tokens), wanted
            if live.caches is not None:
                mlxlm.widen(live.caches, live.capacity)

    def _reserve_slots(self, space: PagedSpace, live: Live, tokens: int, kept: int | None) -> None:
        """See that slots are free for all that running sequences may ask for, and this one."""
        capacity = -(-tokens // BLOCK) * BLOCK
        with self.lock:
            live.guards += 1
            try:
                wanted = space.promised(besides=live) + space.needs(live, capacity, kept)
                self._free(space, wanted)
            finally:
                live.guards -= 1
            live.capacity = capacity

    def _free(self, space: PagedSpace, count: int) -> None:
        """Evict and grow until the pool has ``count`` free slots; as ``make`` does for bytes."""
        space.pages.reap()
        if space.pool.free >= count:
            return
        others = [s for s in self._spaces.values() if s is not space]
        slabs = -(-(len(space.kept()) + count) // SLAB)
        least = sum(s.nbytes - s.evictable() for s in others) + slabs * space.pool.slab_bytes
        if least > max(self.budget, sum(s.nbytes for s in others) + space.nbytes):
            raise NoRoom(
                f"{count} blocks more do not fit: {len(space.kept())} of this model are in use "
                f"or pinned, with a budget of {self.budget:,} bytes"
            )
        while space.pool.free < count:
            if self.nbytes + space.pool.slab_bytes <= self.budget:
                space.pool.grow()
            elif not (any(s.compact() for s in others) or self._evict_one()):
                raise NoRoom(f"{count} blocks more do not fit the budget of {self.budget:,}")
            space.pages.reap()

    def count(self, live: Live, nbytes: int) -> None:
        """Count what a sequence was found to hold, or raise ``NoRoom`` if that is too much."""
        with self.lock:
            live.reserved = nbytes
            self.make(0)

    def carve(self, live: Live, length: int) -> int:
        """File the first tokens of a live cache as far as there is room; returns how many are.

        A row of a batch is copied out of it for that, which may raise ``NoRoom``.
        """
        with self.lock:
            space = self._spaces[live.key]
            if live.caches is None and not space.paged:
                self.make(live.length * live.token_bytes)
            return space.carve(live, length, lambda n: self._take_slots(space, n))

    def _take_slots(self, space: Space, count: int) -> list[Slot]:
        """Up to ``count`` slots: free ones, a new slab's, evicted ones."""
        slots: list[Slot] = []
        while len(slots) < count:
            if space.pool.free:
                slots.append(space.pool.take())
            elif self.nbytes + space.pool.slab_bytes <= self.budget:
                space.pool.grow()
            elif not (self._compact() or self._evict_one()):
                break
        return slots

    # --- what goes ----------------------------------------------------------------------------

    def _compact(self) -> bool:
        return any(space.compact() for space in self._spaces.values())

    def _evict_one(self) -> bool:
        """Give up what was used least recently: a leaf block or a hot cache."""
        leaf = self._index.oldest_leaf(lambda block: self._space_of(block).frees(block))
        oldest = (hot for space in self._spaces.values() for hot in space.hot()[:1])
        hot = min(oldest, key=_age, default=None)
        if hot is not None and (leaf is None or hot.stamp < leaf.stamp):
            self._evict_hot(hot)
        elif leaf is not None:
            self._space_of(leaf).remove(leaf)
        return leaf is not None or hot is not None

    def _space_of(self, block: Block) -> Space:
        assert block.slot is not None, "the root is no leaf"
        slot = block.slot
        return next(s for s in self._spaces.values() if s.blocks.get(slot) is block)

    def _evict_hot(self, hot: Live) -> None:
        """Drop a hot cache; what free slots there are take its first blocks."""
        space = self._spaces[hot.key]
        pool = space.pool
        space.carve(hot, hot.length, lambda n: [pool.take() for _ in range(min(n, pool.free))])
        space.drop(hot)


def _age(live: Live) -> int:
    return live.stamp
