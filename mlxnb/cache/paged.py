"""A paged KV cache in mlx-lm's cache protocol: one layer of one sequence.

A model that was rebound (see ``paged_models``) hands its cache to attention, which then reads the
blocks where they lie. ``update_and_fetch`` returns only the new keys and values: a model whose
attention looks at them itself cannot use this cache, which ``supports_paging`` finds out.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mlxnb.cache.paged_attention import visible
from mlxnb.cache.paged_call import Call
from mlxnb.cache.paged_kernels import gathered
from mlxnb.cache.paged_native import NativeKernels, WriteAndAttend
from mlxnb.cache.paged_pool import PagedPool
from mlxnb.cache.paged_sequence import PagedSequence

if TYPE_CHECKING:
    from mlxnb.cache.paged_batch import PagedBatchKVCache


@dataclass(frozen=True, slots=True)
class Window:
    """Stands for the mask of a sliding window, which paged attention makes as it goes."""

    size: int


class PagedLayer:
    """What one sequence's and a batch's cache have in common: rows of one layer."""

    def __init__(self, pool: PagedPool, layer: int) -> None:
        self.pool = pool
        self.layer = layer
        # the pool keeps a call for its time; held here, slabs would be held with it
        self._call: weakref.ref[Call] | None = None
        self._new_keys: weakref.ref[mx.array] | None = None

    def rows(self) -> Sequence[PagedSequence]:
        """The rows' sequences."""
        raise NotImplementedError

    def offsets(self) -> tuple[int, ...]:
        """The rows' tokens in this layer."""
        raise NotImplementedError

    # --- what a model calls -------------------------------------------------------------------

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Add keys and values ``(rows, heads, n, dim)``; returns just these."""
        assert keys.shape[0] == len(self.rows()), "a row of keys for each row of the cache"
        call = self._take(keys.shape[2])
        self.pool.kernels.write(self.pool, call, self.layer, keys, values)
        self._call = weakref.ref(call)
        self._new_keys = weakref.ref(keys)
        return keys, values

    def write_and_attend(self, width: int, mask: Any, kernel: WriteAndAttend) -> mx.array | None:
        """Attention of ``width`` new tokens a row by a kernel that writes their KV too.

        None: this pool or mask is not for such a kernel, and nothing was done.
        """
        kernels = self.pool.kernels
        causal = mask is None if width == 1 else isinstance(mask, str) and mask == "causal"
        if not (causal and isinstance(kernels, NativeKernels)):
            return None
        return kernels.write_and_attend(self.pool, self._take(width), self.layer, kernel)

    def _take(self, width: int) -> Call:
        """Make room for ``width`` tokens a row and count them in; returns the call they are of."""
        raise NotImplementedError

    def _open(self, counts: tuple[int, ...], width: int) -> Call:
        """The call in which the rows get so many tokens each, with room for them."""
        rows, starts = self.rows(), self.offsets()
        for row, start, count in zip(rows, starts, counts, strict=True):
            if count:
                row.extend_to(start + count)
        return self.pool.call(rows, starts, counts, width)

    def owns(self, keys: mx.array) -> bool:
        """Whether these are the keys that ``update_and_fetch`` returned last."""
        return self._new_keys is not None and self._new_keys() is keys

    def attend(
        self, queries: mx.array, scale: float, mask: Any, sinks: mx.array | None
    ) -> mx.array:
        """Attention of the tokens of the last update, ``(rows, heads, n, dim)``.

        ``mask`` is what ``make_mask`` gave; an array ``(…, n, longest row)`` works too, by way of
        a copy.
        """
        call = self._call() if self._call is not None else None
        assert call is not None, "attention follows the update of the same call"
        if isinstance(mask, mx.array) or (mask is None and queries.shape[2] > 1):
            self.pool.complete()
            keys, values = gathered(self.pool, call, self.layer)
            return mx.fast.scaled_dot_product_attention(
                queries, keys, values, scale=scale, mask=mask, sinks=sinks
            )
        window = mask.size if isinstance(mask, Window) else None
        return self.pool.kernels.attend(self.pool, call, self.layer, queries, scale, window, sinks)

    def make_mask(
        self, N: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array | Window | str | None:
        """The mask of ``N`` more tokens: a word for it, unless an array is asked for."""
        longest = max(self.offsets()) + N
        if return_array:
            lengths = self.pool.positions(tuple(offset + N for offset in self.offsets()))
            return visible(lengths, N, mx.arange(longest), window_size)
        if window_size is not None and longest > window_size:
            return Window(window_size)
        return None if N == 1 else "causal"

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """A copy of all keys and values, ``(rows, heads, longest, dim)``; rows start at 0."""
        offsets = self.offsets()
        call = Call([row.table for row in self.rows()], offsets, (0,) * len(offsets), 0)
        self.pool.complete()
        copies = gathered(self.pool, call, self.layer)
        mx.eval(copies)  # the blocks may be another's when somebody looks
        return copies

    # --- what mlx-lm's generator calls --------------------------------------------------------

    @property
    def state(self) -> list[mx.array]:
        """Arrays whose evaluation completes what was written."""
        return self.pool.kernels.pending(self.pool, self.layer)

    def empty(self) -> bool:
        """Whether no row has a token."""
        return not any(self.offsets())

    def size(self) -> int:
        """Tokens of the longest row."""
        return max(self.offsets())

    @property
    def nbytes(self) -> int:
        """Bytes of this layer of the rows' blocks, those that are shared included."""
        return self.pool.layer_bytes(self.layer, sum(len(row.table) for row in self.rows()))

    def is_trimmable(self) -> bool:
        """Always: every block keeps all of its keys."""
        return True


class PagedKVCache(PagedLayer):
    """One layer of a sequence.

    Attributes
    ----------
    offset
        Tokens of the sequence in this layer.
    """

    def __init__(self, sequence: PagedSequence, layer: int) -> None:
        super().__init__(sequence.pool, layer)
        self.sequence = sequence
        self.offset = sequence.length

    def __deepcopy__(self, memo: dict[int, Any]) -> PagedKVCache:
        from copy import deepcopy

        return PagedKVCache.at(deepcopy(self.sequence, memo), self.layer, self.offset)

    @classmethod
    def at(cls, sequence: PagedSequence, layer: int, offset: int) -> PagedKVCache:
        """A layer that has ``offset`` tokens, whatever the others have."""
        cache = cls(sequence, layer)
        cache.offset = offset
        return cache

    def rows(self) -> Sequence[PagedSequence]:
        """The one sequence."""
        return (self.sequence,)

    def offsets(self) -> tuple[int, ...]:
        """The one offset."""
        return (self.offset,)

    def _take(self, width: int) -> Call:
        call = self._open((width,), width)
        self.offset += width
        return call

    def trim(self, n: int) -> int:
        """Forget the last ``n`` tokens; nothing is copied. Returns how many were forgotten."""
        n = min(self.offset, n)
        self.offset -= n
        self.sequence.cut_to(self.offset)
        return n

    @classmethod
    def merge(cls, caches: Iterable[PagedKVCache]) -> PagedBatchKVCache:
        """A batch whose rows are these caches; nothing is copied, the caches are used up."""
        from mlxnb.cache.paged_batch import PagedBatchKVCache

        caches = list(caches)
        rows, offsets = [c.sequence for c in caches], [c.offset for c in caches]
        return PagedBatchKVCache(rows, offsets, caches[0].layer)


def paged_caches(sequence: PagedSequence) -> list[PagedKVCache]:
    """Caches of a sequence, a cache a layer, for a model to be called with."""
    return [PagedKVCache(sequence, layer) for layer in range(len(sequence.pool.layers))]
