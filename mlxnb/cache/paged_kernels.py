"""What writes new keys and values into the pool and attends to them: MLX's own operations here.

A pool has one ``Kernels`` of its own; the native ones have the same methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import mlx.core as mx

from mlxnb.cache.paged_attention import gather, paged_attention
from mlxnb.cache.paged_call import Call
from mlxnb.cache.paged_tail import Tail

if TYPE_CHECKING:
    from mlxnb.cache.paged_pool import PagedPool


class Kernels(Protocol):
    """Writes and reads one layer of the pool for the rows of a call."""

    def write(
        self, pool: PagedPool, call: Call, layer: int, keys: mx.array, values: mx.array
    ) -> None:
        """Add new keys and values ``(rows, heads, width, dim)``."""

    def attend(
        self,
        pool: PagedPool,
        call: Call,
        layer: int,
        queries: mx.array,
        scale: float,
        window: int | None,
        sinks: mx.array | None,
    ) -> mx.array:
        """Attention of the call's tokens, after ``write``: ``(rows, heads, width, dim)``."""

    def pending(self, pool: PagedPool, layer: int) -> list[mx.array]:
        """Arrays whose evaluation computes what was added."""

    def flush(self, pool: PagedPool) -> None:
        """See that all that was added is in the slabs, or comes there before it is read."""

    def forget(self) -> None:
        """Drop what is pending, after a failure."""


class MlxKernels:
    """Slice updates of the slabs, and attention over a gathered copy."""

    def __init__(self) -> None:
        self._tail: Tail | None = None

    def write(
        self, pool: PagedPool, call: Call, layer: int, keys: mx.array, values: mx.array
    ) -> None:
        """Collect the tokens of rows that decode; write those of prompts at once."""
        if call.width > 1 or 0 in call.counts:
            self.flush(pool)
            mx.eval(keys, values, self.pending(pool, layer))
            _put(pool, call, layer, keys, values)
            return
        if self._tail is None or not self._tail.takes(call):
            self.flush(pool)
            self._tail = Tail(call)
        self._tail.add(call, layer, keys, values)

    def attend(
        self,
        pool: PagedPool,
        call: Call,
        layer: int,
        queries: mx.array,
        scale: float,
        window: int | None,
        sinks: mx.array | None,
    ) -> mx.array:
        """Gather, then MLX's attention."""
        tail = self.tail(call, layer)
        if window is None and len(call.starts) == 1 and call.counts[0] == call.width:
            mask = None if call.width == 1 else "causal"
            return mx.fast.scaled_dot_product_attention(
                queries, *gathered(pool, call, layer, tail), scale=scale, mask=mask, sinks=sinks
            )
        group, place = pool.place(layer)
        slabs = [pool.arrays(name, group) for name in call.slabs]
        keys, values = [k for k, _ in slabs], [v for _, v in slabs]
        written = mx.array(in_blocks(call, tail), dtype=mx.int32)
        lengths, table = call.lengths, call.table
        return paged_attention(
            queries, keys, values, table, lengths, place, scale, window, sinks, written, tail
        )

    def tail(self, call: Call, layer: int) -> tuple[mx.array, mx.array] | None:
        """The call's newest tokens that are not in blocks yet."""
        if self._tail is None or self._tail.call is not call:
            return None
        return self._tail.of(layer)

    def pending(self, pool: PagedPool, layer: int) -> list[mx.array]:
        """The slabs themselves, and what is collected for them."""
        group, _ = pool.place(layer)
        slabs = [array for name in pool.names() for array in pool.arrays(name, group)]
        tail = self._tail.of(layer) if self._tail is not None else None
        return [*slabs, *(tail or ())]

    def flush(self, pool: PagedPool) -> None:
        """Write what is collected, when nothing is left to read the slabs."""
        tail, self._tail = self._tail, None
        if tail is None:
            return
        mx.eval(tail.arrays())
        mx.synchronize()
        for call, layer, keys, values in tail.writes():
            _put(pool, call, layer, keys, values)
            mx.eval(self.pending(pool, layer))

    def forget(self) -> None:
        """Drop what is collected."""
        self._tail = None


def _put(pool: PagedPool, call: Call, layer: int, keys: mx.array, values: mx.array) -> None:
    """Update the slabs; what reads them must have run: MLX copies an array that is to be read."""
    group, place = pool.place(layer)
    for piece in call.pieces():
        rows = slice(piece.at, piece.at + piece.end - piece.begin)
        new = slice(piece.begin, piece.end)
        to_keys, to_values = pool.arrays(piece.slot[0], group)
        to_keys[place, :, piece.slot[1], rows] = keys[piece.row, :, new]
        to_values[place, :, piece.slot[1], rows] = values[piece.row, :, new]


def in_blocks(call: Call, tail: tuple[mx.array, mx.array] | None) -> list[int]:
    """Tokens of each row that are in blocks, or on the way there."""
    waiting = 0 if tail is None else tail[0].shape[2]
    pairs = zip(call.starts, call.counts, strict=True)
    return [start + count - waiting for start, count in pairs]


def gathered(
    pool: PagedPool, call: Call, layer: int, tail: tuple[mx.array, mx.array] | None = None
) -> tuple[mx.array, mx.array]:
    """Copies of a layer's keys and values, ``(rows, heads, longest, dim)``; rows start at 0.

    Of what native kernels wrote they have what was completed before. With a ``tail`` there is one
    row, and the tail is its end.
    """
    group, place = pool.place(layer)
    slabs = [pool.arrays(name, group) for name in call.slabs]
    longest = max(call.starts) + call.width - (0 if tail is None else tail[0].shape[2])
    found = []
    for which in (0, 1):
        run = gather([slab[which] for slab in slabs], call.table, place)[:, :, :longest]
        found.append(run if tail is None else mx.concatenate([run, tail[which]], axis=2))
    return found[0], found[1]
