"""The native CPU kernels over a pool: they write into the slabs and read them where they lie.

MLX does not see these writes. What must come after one takes its result, a byte, as an input;
for each layer that byte is kept here, so that reads and writes of a layer run in the order in
which they were asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxnb.cache.paged_call import Call
from mlxnb.native.extension import available, kernel

if TYPE_CHECKING:
    from mlxnb.cache.paged_pool import PagedPool


WriteAndAttend = Callable[[Any, int, mx.array | None], tuple[mx.array, mx.array]]
"""A kernel for (pages, layer, byte of the write before): its result, and the byte of its write."""


class NativeKernels:
    """The extension's ``paged_write`` and ``paged_attention`` for one pool."""

    def __init__(self) -> None:
        self._pages: Any = kernel("Pages")
        self._paged_write = kernel("paged_write")
        self._paged_attention = kernel("paged_attention")
        self._written: dict[int, mx.array] = {}

    def _pages_of(self, pool: PagedPool, call: Call, group: int) -> Any:
        """The call as the kernels take it; it holds the slabs as long as it is there."""
        pages = call.native.get(group)
        if pages is None:
            slabs = [pool.arrays(name, group) for name in call.slabs]
            keys, values = [k for k, _ in slabs], [v for _, v in slabs]
            table = call.places.ravel().tolist()
            width = call.places.shape[1]
            pages = self._pages(keys, values, table, width, call.starts, call.counts)
            call.native[group] = pages
        return pages

    def write(
        self, pool: PagedPool, call: Call, layer: int, keys: mx.array, values: mx.array
    ) -> None:
        """Into the slabs' own memory, when it is evaluated."""
        group, place = pool.place(layer)
        pages = self._pages_of(pool, call, group)
        before = self._written.get(layer)
        self._written[layer] = self._paged_write(pages, place, keys, values, before)

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
        """Online softmax over the blocks; no copy, no matrix of scores."""
        group, place = pool.place(layer)
        pages = self._pages_of(pool, call, group)
        before = self._written.get(layer)
        return self._paged_attention(pages, place, queries, scale, window or 0, sinks, before)

    def write_and_attend(
        self, pool: PagedPool, call: Call, layer: int, kernel: WriteAndAttend
    ) -> mx.array:
        """Both by one kernel of a block."""
        group, place = pool.place(layer)
        pages = self._pages_of(pool, call, group)
        out, self._written[layer] = kernel(pages, place, self._written.get(layer))
        return out

    def pending(self, pool: PagedPool, layer: int) -> list[mx.array]:
        """The byte of the layer's last write."""
        last = self._written.get(layer)
        return [] if last is None else [last]

    def flush(self, pool: PagedPool) -> None:
        """Nothing: writes are in the order in which they were asked for."""

    def forget(self) -> None:
        """Nothing that comes waits for what was asked for so far."""
        self._written.clear()


def native_kernels() -> NativeKernels | None:
    """The native kernels, if they are there and wanted."""
    return NativeKernels() if available() else None
