"""One layer of several sequences of any lengths, in mlx-lm's protocol of a batch cache.

Rows need no padding among each other: each reads its own blocks. All that joins, leaves or is
split is lists of sequences; no keys are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import mlx.core as mx

from mlxnb.cache.paged import PagedKVCache, PagedLayer
from mlxnb.cache.paged_call import Call
from mlxnb.cache.paged_sequence import PagedSequence


class PagedBatchKVCache(PagedLayer):
    """One layer of the rows of a batch.

    Parameters
    ----------
    sequences
        The rows, at least one.
    offsets
        Each row's tokens in this layer.
    """

    def __init__(
        self, sequences: Sequence[PagedSequence], offsets: Sequence[int], layer: int
    ) -> None:
        super().__init__(sequences[0].pool, layer)
        self._rows = list(sequences)
        self._offsets = list(offsets)
        self._left: list[int] | None = None
        self._padding: list[int] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> PagedBatchKVCache:
        from copy import deepcopy

        rows = [deepcopy(row, memo) for row in self._rows]
        return PagedBatchKVCache(rows, self._offsets, self.layer)

    def rows(self) -> Sequence[PagedSequence]:
        """The rows' sequences."""
        return self._rows

    def offsets(self) -> tuple[int, ...]:
        """The rows' tokens in this layer; while a padded prompt is computed, padding included."""
        return tuple(self._offsets)

    @property
    def offset(self) -> mx.array:
        """The same as an array ``(rows,)`` int32."""
        return self.pool.positions(self.offsets())

    def _take(self, width: int) -> Call:
        left = self._left or [width] * len(self._rows)
        counts = tuple(min(width, count) for count in left)
        call = self._open(counts, width)
        self._offsets = [offset + width for offset in self._offsets]
        if self._left is not None:
            self._left = [all_ - count for all_, count in zip(self._left, counts, strict=True)]
        return call

    # --- prompts that are padded on the right -------------------------------------------------

    def prepare(
        self,
        *,
        left_padding: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
        right_padding: Sequence[int] | None = None,
    ) -> None:
        """Expect prompts of these lengths, padded on the right to the longest."""
        if left_padding is not None and any(left_padding):
            raise ValueError("rows of a paged cache begin at position 0: pad on the right")
        if right_padding is not None and any(right_padding):
            assert lengths is not None, "right padding comes with the prompts' lengths"
            self._left, self._padding = list(lengths), list(right_padding)

    def finalize(self) -> None:
        """The prompts are there: forget the padding."""
        if self._padding is not None:
            pairs = zip(self._offsets, self._padding, strict=True)
            self._offsets = [offset - padding for offset, padding in pairs]
        self._left = self._padding = None

    # --- rows come and go ---------------------------------------------------------------------

    def trim(self, n: int) -> int:
        """Forget the last ``n`` tokens of every row, no more than the longest has."""
        n = min(self.size(), n)
        self._offsets = [max(0, offset - n) for offset in self._offsets]
        for row, offset in zip(self._rows, self._offsets, strict=True):
            row.cut_to(offset)
        return n

    def filter(self, batch_indices: Iterable[Any]) -> None:
        """Keep these rows, in this order."""
        keep = [int(index) for index in batch_indices]
        self._rows = [self._rows[index] for index in keep]
        self._offsets = [self._offsets[index] for index in keep]

    def extend(self, other: PagedBatchKVCache) -> None:
        """Take in the rows of another batch, which is used up."""
        self._rows += other._rows
        self._offsets += other._offsets

    def extract(self, idx: int) -> PagedKVCache:
        """A row's cache by itself: it reads the same blocks, and the row may go on or leave."""
        sequence = self._rows[idx].extracted(self.layer)
        return PagedKVCache.at(sequence, self.layer, self._offsets[idx])

    @classmethod
    def merge(cls, caches: Iterable[PagedKVCache]) -> PagedBatchKVCache:
        """A batch whose rows are these caches."""
        return PagedKVCache.merge(caches)
