"""What writes new keys and values into the pool and attends to them: MLX's own operations here.

A pool has one ``Kernels``; the native ones have the same three methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import mlx.core as mx

from mlxnb.cache.paged_attention import gather, paged_attention
from mlxnb.cache.paged_call import Call

if TYPE_CHECKING:
    from mlxnb.cache.paged_pool import PagedPool


class Kernels(Protocol):
    """Writes and reads one layer of the pool for the rows of a call."""

    def write(
        self, pool: PagedPool, call: Call, layer: int, keys: mx.array, values: mx.array
    ) -> None:
        """Put new keys and values ``(rows, heads, width, dim)`` into their blocks."""

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
        """Arrays whose evaluation completes what was written."""


class MlxKernels:
    """Slice updates of the slabs, and attention over a gathered copy."""

    def write(
        self, pool: PagedPool, call: Call, layer: int, keys: mx.array, values: mx.array
    ) -> None:
        """Update the slabs in place.

        What reads them must have run before: MLX copies an array that is to be read yet.
        """
        group, place = pool.place(layer)
        slabs = [pool.arrays(name, group) for name in call.slabs]
        mx.eval(keys, values, slabs)
        by_name = dict(zip(call.slabs, slabs, strict=True))
        for piece in call.pieces():
            rows = slice(piece.at, piece.at + piece.end - piece.begin)
            new = slice(piece.begin, piece.end)
            to_keys, to_values = by_name[piece.slot[0]]
            to_keys[place, :, piece.slot[1], rows] = keys[piece.row, :, new]
            to_values[place, :, piece.slot[1], rows] = values[piece.row, :, new]

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
        group, place = pool.place(layer)
        if window is None and len(call.starts) == 1 and call.counts[0] == call.width:
            mask = None if call.width == 1 else "causal"
            return mx.fast.scaled_dot_product_attention(
                queries, *gathered(pool, call, layer), scale=scale, mask=mask, sinks=sinks
            )
        slabs = [pool.arrays(name, group) for name in call.slabs]
        keys, values = [k for k, _ in slabs], [v for _, v in slabs]
        lengths, written = call.lengths, call.written
        return paged_attention(
            queries, keys, values, call.table, lengths, place, scale, window, sinks, written
        )

    def pending(self, pool: PagedPool, layer: int) -> list[mx.array]:
        """The slabs themselves."""
        group, _ = pool.place(layer)
        return [array for name in pool.names() for array in pool.arrays(name, group)]


def gathered(pool: PagedPool, call: Call, layer: int) -> tuple[mx.array, mx.array]:
    """Copies of a layer's keys and values, ``(rows, heads, longest, dim)``; rows start at 0.

    Of what native kernels wrote, they have what was completed before.
    """
    group, place = pool.place(layer)
    slabs = [pool.arrays(name, group) for name in call.slabs]
    longest = max(call.starts) + call.width
    keys = gather([k for k, _ in slabs], call.table, place)
    values = gather([v for _, v in slabs], call.table, place)
    return keys[:, :, :longest], values[:, :, :longest]
