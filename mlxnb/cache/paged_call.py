"""One model call over rows of a batch: which tokens are new, and where each row's blocks lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from mlxnb.cache.index import Slot
from mlxnb.cache.pool import BLOCK, SLAB


@dataclass(frozen=True, slots=True)
class Piece:
    """New tokens ``[begin, end)`` of a row's call that go into one block, from ``at`` on."""

    row: int
    begin: int
    end: int
    slot: Slot
    at: int


@dataclass(slots=True, eq=False, weakref_slot=True)
class Call:
    """What all layers of one call of the model share.

    Row ``b`` has ``starts[b]`` tokens and gets ``counts[b]`` more; its other ``width - counts[b]``
    columns are padding, whose keys are not kept and whose outputs nobody reads. ``slabs`` are the
    names of the slabs in which the rows' blocks lie, ``places`` the table ``(rows, blocks)``.
    ``serials`` are the rows' sequences, ``native`` is what native kernels made of the call.
    """

    tables: Sequence[Sequence[Slot]]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    width: int
    serials: tuple[int, ...] = ()
    slabs: list[int] = field(init=False)
    places: np.ndarray[Any, Any] = field(init=False)
    native: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        blocks = -(-(max(self.starts) + self.width) // BLOCK)
        self.tables = [table[:blocks] for table in self.tables]
        self.slabs = sorted({slab for table in self.tables for slab, _ in table})
        first = {slab: number * SLAB for number, slab in enumerate(self.slabs)}
        self.places = np.zeros((len(self.tables), blocks), np.int32)
        for b, table in enumerate(self.tables):
            self.places[b, : len(table)] = [first[slab] + row for slab, row in table]

    @property
    def table(self) -> mx.array:
        """The table as paged attention takes it."""
        return mx.array(self.places)

    @property
    def lengths(self) -> mx.array:
        """``(rows,)`` int32: position after each row's last column."""
        return mx.array([start + self.width for start in self.starts], dtype=mx.int32)

    @property
    def written(self) -> mx.array:
        """``(rows,)`` int32: tokens of each row, padding left out."""
        pairs = zip(self.starts, self.counts, strict=True)
        return mx.array([start + count for start, count in pairs], dtype=mx.int32)

    def pieces(self) -> Iterator[Piece]:
        """What is to be written, block by block."""
        for b, (start, count) in enumerate(zip(self.starts, self.counts, strict=True)):
            begin = 0
            while begin < count:
                block, at = divmod(start + begin, BLOCK)
                end = min(count, begin + BLOCK - at)
                yield Piece(b, begin, end, self.tables[b][block], at)
                begin = end
