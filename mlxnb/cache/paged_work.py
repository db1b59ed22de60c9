"""What the rows of a call are for the Metal kernels: which blocks which launch attends to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from mlxnb.cache.paged_launch import MAX_SLABS
from mlxnb.cache.pool import BLOCK, SLAB

PART_BLOCKS = 16
"""Blocks of a row that one threadgroup attends to."""

Ints = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Blocks that one launch attends to: some slabs, and each row's blocks in them.

    ``table`` is ``(rows, entries, 2)``: place of a block in these slabs (-1: none), and its
    number in the row.
    """

    slabs: list[int]
    table: Ints

    @property
    def parts(self) -> int:
        """Threadgroups that share a row."""
        entries: int = self.table.shape[1]
        return max(1, -(-entries // PART_BLOCKS))


def batches(places: Ints, ranges: Sequence[range]) -> list[Batch]:
    """Split the blocks of a table ``(rows, blocks)``, of which rows use those in ``ranges``."""
    used = [
        [(int(row[number]), number) for number in numbers]
        for row, numbers in zip(places, ranges, strict=True)
    ]
    slabs = sorted({place // SLAB for row in used for place, _ in row})
    starts = range(0, max(1, len(slabs)), MAX_SLABS)
    return [_batch(used, slabs[at : at + MAX_SLABS]) for at in starts]


def _batch(used: list[list[tuple[int, int]]], slabs: list[int]) -> Batch:
    first = {slab: number * SLAB for number, slab in enumerate(slabs)}
    rows = [
        [(first[p // SLAB] + p % SLAB, number) for p, number in row if p // SLAB in first]
        for row in used
    ]
    table = np.full((len(rows), max(1, *map(len, rows), 1), 2), -1, np.int32)
    for number, row in enumerate(rows):
        table[number, : len(row)] = np.array(row, np.int32).reshape(-1, 2)
    return Batch(slabs, table)


@dataclass(slots=True)
class Work:
    """A call's rows as the kernels take them; layers share it.

    ``lengths`` and ``written`` are those of ``paged_attention``; ``tail`` is how many tokens of
    each row come after those in blocks.
    """

    places: Ints
    lengths: Sequence[int]
    written: Sequence[int]
    heads: int
    kv_heads: int
    width: int
    window: int | None
    scale: float
    sinks: bool
    tail: int = 0
    batches: list[Batch] = field(init=False)
    infos: list[mx.array] = field(init=False)

    def __post_init__(self) -> None:
        pairs = zip(self.lengths, self.written, strict=True)
        self.batches = batches(self.places, [self._seen(*pair) for pair in pairs])
        self.infos = [self._info(number) for number in range(len(self.batches))]

    def _seen(self, length: int, written: int) -> range:
        """Numbers of the blocks that a row's queries look at."""
        first = 0 if self.window is None else max(0, length - self.width + 1 - self.window)
        return range(first // BLOCK, -(-min(length, written) // BLOCK))

    def _info(self, number: int) -> mx.array:
        """What the kernel's ``read_info`` reads, and the rows' lengths and tables after it."""
        batch = self.batches[number]
        (scale,) = np.array([self.scale], np.float32).view(np.int32).tolist()
        sinks = int(self.sinks and number == 0)  # in the sum once
        head = [len(self.lengths), self.heads, self.kv_heads, self.width, batch.table.shape[1]]
        head += [batch.parts, self.window or 0, sinks, scale, self.tail if number == 0 else 0]
        rest = batch.table.ravel().tolist()
        return mx.array([*head, *self.lengths, *self.written, *rest], dtype=mx.int32)
