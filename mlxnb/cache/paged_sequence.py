"""The blocks of one sequence: a table that all of its layers share."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlxnb.cache.index import Slot
from mlxnb.cache.pool import BLOCK

if TYPE_CHECKING:
    from mlxnb.cache.paged_pool import PagedPool


class PagedSequence:
    """A block table and how many tokens of it are the sequence's.

    Blocks that others hold too are never written: where the sequence goes on in the midst of
    one, it takes a copy of that block first.

    Parameters
    ----------
    slots
        Blocks that the sequence begins with; each is held once more.
    length
        Tokens of them that are the sequence's.

    Attributes
    ----------
    version
        Another number whenever the table changes.
    """

    def __init__(self, pool: PagedPool, slots: Sequence[Slot] = (), length: int = 0) -> None:
        self.pool = pool
        self.table: list[Slot] = []
        assert len(slots) == -(-length // BLOCK), "a table has the blocks that its tokens need"
        self.table.extend(slots)
        self.length = length
        self.version = 0
        self.serial = next(pool.serials)
        self._extract: weakref.ref[PagedSequence] | None = None
        self._extracted: set[int] = set()
        for slot in slots:
            pool.retain(slot)
        pool.sequences.add(self)

    def __del__(self) -> None:
        # the collector may run anywhere: the pool gives the slots back when it next hands one out
        if self.table:
            self.pool.dropped.append(self.table)

    def __deepcopy__(self, memo: dict[int, Any]) -> PagedSequence:
        return self.fork()

    # --- length -------------------------------------------------------------------------------

    def missing(self, length: int) -> int:
        """Slots that growing to ``length`` tokens is going to ask for."""
        return max(0, -(-length // BLOCK) - len(self.table)) + int(self._tail_is_shared())

    def extend_to(self, length: int) -> None:
        """Make room for ``length`` tokens; the layers that come second find it done."""
        if length <= self.length:
            return
        if self._tail_is_shared():
            self._copy_tail()
        while len(self.table) * BLOCK < length:
            self.table.append(self.pool.slot())
            self.version += 1
        self.length = length

    def cut_to(self, length: int) -> None:
        """Forget what lies beyond ``length`` tokens; the slots go back."""
        if length >= self.length:
            return
        self.length = length
        blocks = -(-length // BLOCK)
        if blocks < len(self.table):
            rest, self.table = self.table[blocks:], self.table[:blocks]
            self.version += 1
            for slot in rest:
                self.pool.give_back(slot)

    def release(self) -> None:
        """Give all slots back; the sequence is empty then."""
        self.cut_to(0)

    def _tail_is_shared(self) -> bool:
        self.pool.reap()
        return self.length % BLOCK != 0 and self.pool.holders(self.table[-1]) > 1

    def _copy_tail(self) -> None:
        shared, own = self.table[-1], self.pool.slot()
        self.pool.copy(shared, own)
        self.table[-1] = own
        self.version += 1
        self.pool.give_back(shared)

    # --- sharing ------------------------------------------------------------------------------

    def fork(self, length: int | None = None) -> PagedSequence:
        """A sequence that reads the same blocks, of the first ``length`` tokens."""
        length = self.length if length is None else length
        return PagedSequence(self.pool, self.table[: -(-length // BLOCK)], length)

    def replace(self, old: Slot, new: Slot) -> None:
        """Note that a block lies in another slot now."""
        if old in self.table:
            self.table = [new if slot == old else slot for slot in self.table]
            self.version += 1

    def adopt(self, number: int, slot: Slot) -> None:
        """Use a block with the same content as block ``number``, which is let go."""
        old = self.table[number]
        if old != slot:
            self.pool.retain(slot)
            self.table[number] = slot
            self.version += 1
            self.pool.give_back(old)

    def extracted(self, layer: int) -> PagedSequence:
        """A fork for a layer taken out of a batch; the layers of one extraction share it."""
        fork = self._extract() if self._extract is not None else None
        if fork is None or layer in self._extracted or fork.length != self.length:
            fork, self._extracted = self.fork(), set()
            self._extract = weakref.ref(fork)
        self._extracted.add(layer)
        return fork
