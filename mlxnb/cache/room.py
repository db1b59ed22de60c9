"""The byte budget of a host's KV: what is held, and what goes when more is wanted."""

from __future__ import annotations

import logging
import threading
import time

from mlxnb import mlxlm
from mlxnb.cache.checkpoint import Checkpoint
from mlxnb.cache.index import Block, PrefixIndex, Slot
from mlxnb.cache.live import Live, whole_steps
from mlxnb.cache.paged_space import PagedSpace
from mlxnb.cache.pool import BLOCK, SLAB, Run
from mlxnb.cache.snapshots import Snapshots
from mlxnb.cache.space import Space

log = logging.getLogger(__name__)


SNAPSHOTS = 3
"""Checkpoints may take one part in so many of the budget."""


class NoRoom(Exception):
    """The budget has no room for now: what is there is in use or pinned."""


class Tight(NoRoom):
    """The budget would have room, and the system has no memory to spare for it now.

    ``missing``: bytes by which KV would pass its limit; None: it is not KV that does not fit.
    """

    def __init__(self, message: str, missing: int | None = None) -> None:
        super().__init__(message)
        self.missing = missing


class Room:
    """Pools and live caches of all models under one budget.

    Blocks go leaf-first and least recently used first, hot caches in the same order; what is in
    use or pinned stays. ``lock`` guards all of it and the index; arrays are touched on the
    engine's thread alone.

    Parameters
    ----------
    budget
        Bytes that all of it may hold.

    Attributes
    ----------
    pressed
        Bytes that it may hold while the system is short of memory; None: it is not.
    """

    def __init__(self, budget: int, index: PrefixIndex, spaces: dict[str, Space]) -> None:
        self.lock = threading.RLock()
        self.budget = budget
        self.pressed: int | None = None
        self.snapshots = Snapshots(index.clock)
        self._index = index
        self._spaces = spaces

    @property
    def nbytes(self) -> int:
        """Bytes held by pools, live caches and checkpoints."""
        return sum(space.nbytes for space in self._spaces.values()) + self.snapshots.nbytes

    @property
    def limit(self) -> int:
        """Bytes that it may hold now."""
        return self.budget if self.pressed is None else min(self.budget, self.pressed)

    @property
    def in_use(self) -> int:
        """Bytes of what runs, is promised or is pinned."""
        with self.lock:
            return self.nbytes - self._evictable()

    def press(self, target: int) -> None:
        """Hold no more than ``target`` bytes from now on, but all that is in use."""
        with self.lock:
            self.pressed = None if target >= self.budget else max(target, self.in_use)

    def make(self, need: int) -> None:
        """Evict until ``need`` more bytes fit.

        Raises
        ------
        NoRoom
            They would not, whatever is evicted; then nothing is.
        """
        with self.lock:
            if self.nbytes + need <= self.limit:
                return
            kept = self.in_use
            if kept + need > self.limit:
                told = f"{need:,} bytes more do not fit: {kept:,} are in use or pinned"
                raise self._full(told, kept + need)
            if not self._down_to(self.limit - need):
                raise self._full(f"{need:,} bytes more do not fit", self.nbytes + need)

    def _full(self, told: str, wanted: int) -> NoRoom:
        """What to raise where ``wanted`` bytes would be held: the budget or the system is short."""
        limit = self.limit
        if limit < wanted <= self.budget:
            return Tight(f"{told}, of {limit:,} that the system has for KV now", wanted - limit)
        return NoRoom(f"{told}, of a budget of {self.budget:,}")

    def _evictable(self) -> int:
        spaces = sum(space.evictable() for space in self._spaces.values())
        return spaces + self.snapshots.evictable()

    def shrink(self) -> None:
        """Hold the limit, as far as what is in use allows it; checkpoints hold their part."""
        with self.lock:
            self._room_in_part(0)
            if not self._down_to(self.limit):
                log.warning("the prefix cache is over its budget: all that is left is in use")

    def spare(self, nbytes: int) -> bool:
        """Give up so many bytes that nobody uses; False: there are not as many, and all stays."""
        with self.lock:
            return nbytes <= self._evictable() and self._down_to(self.nbytes - nbytes)

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
        if tokens <= live.capacity or not live.bytes_for(tokens):
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
        least += self.snapshots.nbytes - self.snapshots.evictable()
        if least > max(self.limit, sum(s.nbytes for s in others) + space.nbytes):
            kept = len(space.kept())
            told = f"{count} blocks more do not fit: {kept} of this model are in use or pinned"
            raise self._full(told, least)
        while space.pool.free < count:
            if self.nbytes + space.pool.slab_bytes <= self.limit:
                space.pool.grow()
            elif not (any(s.compact() for s in others) or self._evict_one()):
                wanted = self.nbytes + space.pool.slab_bytes
                raise self._full(f"{count} blocks more do not fit", wanted)
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
            if space.anchored and live.caches is not None and length == live.length:
                self.checkpoint(live)
            return space.carve(live, length, lambda n: self._take_slots(space, n))

    def _take_slots(self, space: Space, count: int) -> list[Slot]:
        """Up to ``count`` slots: free ones that nobody was promised, a new slab's, evicted ones."""
        promised = space.promised() if isinstance(space, PagedSpace) else 0
        slots: list[Slot] = []
        while len(slots) < count:
            if space.pool.free > promised:
                slots.append(space.pool.take())
            elif self.nbytes + space.pool.slab_bytes <= self.limit:
                space.pool.grow()
            elif not (self._compact() or self._evict_one()):
                break
        return slots

    # --- checkpoints --------------------------------------------------------------------------

    def checkpoint(self, live: Live) -> bool:
        """Take a checkpoint of a sequence where it is; False: there is no room for one."""
        with self.lock:
            if live.length == 0 or live.checkpoint_at(live.length) is not None:
                return True
            live.guards += 1
            try:
                return self._take_checkpoint(live)
            finally:
                live.guards -= 1

    def _take_checkpoint(self, live: Live) -> bool:
        space = self._spaces[live.key]
        assert space.layout is not None, "a sequence of a model that can be reused"
        if not self._room_for(space.layout.state_bytes):
            return False
        taken = space.checkpoint(live)
        if not self._room_for_all_of(taken):
            return False
        taken.live, live.newest = live, taken
        live.checkpoints.append(taken)
        self.snapshots.add(taken, time.time())
        return True

    def _room_for(self, need: int) -> bool:
        """Give up older checkpoints until ``need`` more bytes of them fit."""
        if not self._room_in_part(need):
            return False
        try:
            self.make(need)
        except NoRoom:
            return False
        return True

    def _room_for_all_of(self, taken: Checkpoint) -> bool:
        """The same for a checkpoint: of what it shares with one that goes, it is left alone."""
        while True:
            growth = self.snapshots.growth(taken)
            if not self._room_for(growth):
                return False
            if self.snapshots.growth(taken) == growth:
                return True

    def _room_in_part(self, need: int) -> bool:
        """The same, as far as their part of the budget is concerned."""
        while self.snapshots.nbytes + need > self.limit // SNAPSHOTS:
            oldest = self.snapshots.oldest()
            if oldest is None:
                return False
            self._spaces[oldest.space].forget(oldest)
        return True

    # --- from the disk ------------------------------------------------------------------------

    def file(self, space: Space, parent: Block, pieces: list[bytes], run: Run) -> int:
        """File KV that was read from disk after a block, as far as there is room; up to where."""
        with self.lock:
            return space.file(parent, pieces, run, lambda n: self._take_slots(space, n))

    def adopt(self, space: Space, root: Block, tokens: bytes, checkpoint: Checkpoint) -> None:
        """File a checkpoint that was read from disk, if there is room for it."""
        with self.lock:
            if not self._room_for_all_of(checkpoint):
                return
            self.snapshots.add(checkpoint, time.time())
            space.mark(root, tokens, checkpoint)

    # --- what goes ----------------------------------------------------------------------------

    def _down_to(self, target: int) -> bool:
        """Give up until no more than ``target`` bytes are held; False: all that is left stays."""
        while self.nbytes > target:
            if not (self._compact() or self._evict_one()):
                return False
        return True

    def _compact(self) -> bool:
        return any(space.compact() for space in self._spaces.values())

    def _evict_one(self) -> bool:
        """Give up what was used least recently: a leaf block, a hot cache or a checkpoint."""
        leaf = self._index.oldest_leaf(lambda block: self.space_of(block).frees(block))
        hots = (hot for space in self._spaces.values() for hot in space.hot()[:1])
        found: list[Block | Live | Checkpoint] = [leaf] if leaf is not None else []
        found += hots
        oldest = self.snapshots.oldest()
        found += [oldest] if oldest is not None else []
        if found:
            self._evict(min(found, key=lambda item: item.stamp))
        return bool(found)

    def _evict(self, item: Block | Live | Checkpoint) -> None:
        if isinstance(item, Live):
            self._evict_hot(item)
        elif isinstance(item, Checkpoint):
            self._spaces[item.space].forget(item)
        else:
            self.space_of(item).remove(item)

    def space_of(self, block: Block) -> Space:
        """The space that a block is in."""
        assert block.slot is not None, "the root is no leaf"
        slot = block.slot
        return next(s for s in self._spaces.values() if s.blocks.get(slot) is block)

    def _evict_hot(self, hot: Live) -> None:
        """Drop a hot cache; what free slots there are take its first blocks."""
        space = self._spaces[hot.key]
        pool = space.pool
        space.carve(hot, hot.length, lambda n: [pool.take() for _ in range(min(n, pool.free))])
        space.drop(hot)
