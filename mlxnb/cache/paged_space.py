"""One model's part of the prefix cache where attention reads the block pool in place.

Live caches are tables of the pool's blocks, and a block may be in many tables and in the index.
So nothing is copied when a sequence is filed, reused or forked, and the pool's bytes are all
there is. What a running sequence may still ask for is promised: so many slots stay free.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlxnb import mlxlm
from mlxnb.cache.index import Block, Match, Slot
from mlxnb.cache.live import Live
from mlxnb.cache.paged import paged_caches
from mlxnb.cache.paged_pool import PagedPool
from mlxnb.cache.paged_sequence import PagedSequence
from mlxnb.cache.pool import BLOCK, SLAB, Run
from mlxnb.cache.space import Space, TakeSlots, pieces_of
from mlxnb.records.tokens import WIDTH


@dataclass(slots=True)
class PagedSpace(Space):
    """As ``Space``; its pool is a ``PagedPool``, and its live caches have ``pages``."""

    @property
    def paged(self) -> bool:
        """Whether live caches are tables of the pool's blocks."""
        return True

    @property
    def pages(self) -> PagedPool:
        """The pool."""
        assert isinstance(self.pool, PagedPool), "a paged space has a paged pool"
        return self.pool

    # --- what is there, and for whom ----------------------------------------------------------

    def needs(self, live: Live, capacity: int, kept: int | None = None) -> int:
        """Slots that a live cache may ask for on its way from ``kept`` tokens to ``capacity``.

        A block that it ends in the midst of counts: another may come to share it, and then it
        takes a copy to write on.
        """
        if kept is None:
            kept = live.pages.length if live.pages is not None else 0
        return max(0, -(-capacity // BLOCK) - kept // BLOCK)

    def promised(self, besides: Live | None = None) -> int:
        """Slots that running sequences may still ask for."""
        running = (live for live in self.lives if live.running and live is not besides)
        return sum(self.needs(live, live.capacity) for live in running)

    def kept(self) -> set[Slot]:
        """Slots that hold what is in use or pinned."""
        hot = self.hot()
        slots = {s for live in self.lives if live not in hot for s in table_of(live)}
        for block in self.blocks.values():
            if block.refs or block.pinned:
                slots.update(b.slot for b in block.chain() if b.slot is not None)
        return slots

    def evictable(self) -> int:
        """Bytes of slabs that are there for convenience alone."""
        self.pages.reap()
        slabs = self.pool.slabs - -(-(len(self.kept()) + self.promised()) // SLAB)
        return max(0, slabs) * self.pool.slab_bytes

    def frees(self, block: Block) -> bool:
        """Whether taking a block out of the index frees its slot."""
        assert block.slot is not None, "the root stays"
        self.pages.reap()
        return self.pages.holders(block.slot) == 1

    def bytes_of(self, live: Live) -> int:
        """Bytes of the blocks that a live cache alone holds."""
        alone = sum(self.pages.holders(slot) == 1 for slot in table_of(live))
        return alone * BLOCK * self.pool.token_bytes

    # --- live cache → blocks ------------------------------------------------------------------

    def carve(self, live: Live, length: int, take: TakeSlots) -> int:
        """File the first ``length`` tokens of a live cache where they lie; returns how many are.

        Where blocks with these tokens are filed already, the live cache uses those from now on.
        """
        if live.pages is None:
            return 0
        tokens = bytes(live.tokens[: length * WIDTH])
        match = self.index.match(live.root, tokens, length)
        chain = match.block.chain()
        for number, block in enumerate(chain):
            assert block.slot is not None, "the root is not in the chain"
            live.pages.adopt(number, block.slot)
        if match.length == length:
            return length
        parent, end = match.block, match.block.end
        for number, piece in enumerate(pieces_of(tokens[end * WIDTH :]), len(chain)):
            self._drop_shorter(parent, piece)
            slot = self._shared(live.pages.table[number])
            if slot is None:
                break
            parent = self.index.add(parent, piece, slot)
            self.blocks[slot] = parent
            end = parent.end
        return max(end, match.length)

    def _shared(self, slot: Slot) -> Slot | None:
        """The slot, held for the index; a copy if a shorter block that must stay is filed there."""
        pool = self.pages
        if slot not in self.blocks:
            pool.retain(slot)
            return slot
        if pool.free <= self.promised():
            return None
        copy = pool.take()
        pool.copy(slot, copy)
        self.copied_bytes += BLOCK * pool.token_bytes
        return copy

    # --- blocks → live cache ------------------------------------------------------------------

    def fresh(self, capacity: int) -> mlxlm.Caches:
        """Caches that hold nothing."""
        return list(paged_caches(PagedSequence(self.pages)))

    def load(self, match: Match, capacity: int) -> mlxlm.Caches:
        """Caches that read the tokens of a match."""
        return list(paged_caches(PagedSequence(self.pages, match.slots(), match.length)))

    def duplicate(self, live: Live, length: int, capacity: int) -> mlxlm.Caches:
        """Caches that read the first ``length`` tokens of a live cache."""
        assert live.pages is not None, "a live cache of this space has a table"
        return list(paged_caches(live.pages.fork(length)))

    def read(self, live: Live, start: int, end: int) -> Run:
        """Keys and values ``(heads, end - start, dim)``, from a block's beginning on."""
        assert start % BLOCK == 0, "blocks are read from their beginning"
        return self.read_blocks(table_of(live)[start // BLOCK : -(-end // BLOCK)], end - start)

    # --- giving up ----------------------------------------------------------------------------

    def drop(self, live: Live) -> None:
        """Forget a live cache; harmless when done twice."""
        Space.drop(self, live)
        pages, live.pages = live.pages, None
        if pages is not None:
            pages.release()

    def failed(self) -> None:
        """A call of the model failed: what others wrote is completed, or all of it is given up."""
        try:
            self.pages.settle()
        except Exception:
            self.pages.abandon()

    def compact(self) -> bool:
        """Give a slab's memory back, moving its blocks where there is room; False: none can go.

        Blocks that sequences read move too: their tables are rewritten.
        """
        pool = self.pages
        pool.reap()
        slab = pool.emptiest()
        if slab is None or pool.free - self.promised() < SLAB:
            return False
        pool.settle()
        for row in pool.close(slab):
            target = pool.take()
            pool.move((slab, row), target)
            block = self.blocks.pop((slab, row), None)
            if block is not None:
                block.slot, self.blocks[target] = target, block
        pool.drop(slab)
        return True


def table_of(live: Live) -> list[Slot]:
    """The slots that a live cache reads."""
    return live.pages.table if live.pages is not None else []
