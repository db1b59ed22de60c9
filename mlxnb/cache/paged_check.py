"""Kernels over blocks against plain MLX, on the machine at hand.

Tests run the Metal kernels by a stand-in; only this says what a GPU makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxnb.cache.paged import PagedKVCache, Window, paged_caches
from mlxnb.cache.paged_attention import paged_attention
from mlxnb.cache.paged_batch import PagedBatchKVCache
from mlxnb.cache.paged_kernels import Kernels, MlxKernels
from mlxnb.cache.paged_launch import Launch
from mlxnb.cache.paged_metal import Run, attend
from mlxnb.cache.paged_pool import PagedPool
from mlxnb.cache.paged_sequence import PagedSequence
from mlxnb.cache.paged_work import Work
from mlxnb.cache.pool import BLOCK, SLAB
from mlxnb.mlxlm import LayerShape


@dataclass(frozen=True, slots=True)
class Shape:
    """A call of attention to try."""

    lengths: tuple[int, ...]
    dim: int = 64
    dtype: mx.Dtype = mx.float32
    heads: int = 2
    share: int = 2
    width: int = 1
    window: int | None = None
    sinks: bool = False
    tail: int = 0


SHAPES = [
    Shape((1, 17)),
    Shape((40, 300), dim=80),
    Shape((300, 5), dim=128, dtype=mx.float16, tail=4),
    Shape((90,), dim=256, dtype=mx.bfloat16, share=1),
    Shape((70, 33), dim=96, width=4, window=20),
    Shape((600, 64), sinks=True, window=300, tail=16),
]


def differences(run: Run = Launch.run) -> Iterator[tuple[Shape, float]]:
    """Each shape, and the largest difference of the kernels' answer from plain MLX's.

    Outputs are means of values drawn from a normal distribution: float32 answers differ by less
    than 1e-5, half ones by less than 0.02.
    """
    for shape in SHAPES:
        found, wanted = _answers(shape, run)
        gap = mx.abs(found.astype(mx.float32) - wanted.astype(mx.float32))
        # NaN is the largest difference of all
        yield shape, np.array(mx.where(mx.isnan(gap), mx.inf, gap)).max().item()


def _answers(shape: Shape, run: Run) -> tuple[mx.array, mx.array]:
    random = np.random.default_rng(0)
    rows, layers = len(shape.lengths), 2

    def draw(*size: int) -> mx.array:
        return mx.array(random.normal(size=size).astype(np.float32)).astype(shape.dtype)

    blocks = -(-max(shape.lengths) // BLOCK)
    count = -(-rows * blocks // SLAB)
    places = random.permutation(count * SLAB)[: rows * blocks].astype(np.int32)
    table = places.reshape(rows, blocks)
    slab = (layers, shape.heads, SLAB, BLOCK, shape.dim)
    keys, values = [draw(*slab) for _ in range(count)], [draw(*slab) for _ in range(count)]
    heads, scale = shape.heads * shape.share, shape.dim**-0.5
    queries = draw(rows, heads, shape.width, shape.dim)
    size = (rows, shape.heads, shape.tail, shape.dim)
    tail = (draw(*size), draw(*size)) if shape.tail else None
    sinks = draw(heads) if shape.sinks else None
    # tokens that are in the blocks; a tail makes rows longer
    lengths = [length + shape.tail for length in shape.lengths]
    work = Work(
        table,
        lengths,
        shape.lengths,
        heads,
        shape.heads,
        shape.width,
        shape.window,
        scale,
        shape.sinks,
        shape.tail,
    )
    found = attend(work, queries, keys, values, 1, sinks, tail, run)
    written = mx.array(shape.lengths, dtype=mx.int32)
    ends = mx.array(lengths, dtype=mx.int32)
    wanted = paged_attention(
        queries,
        keys,
        values,
        mx.array(table),
        ends,
        1,
        scale,
        shape.window,
        sinks,
        written,
        tail,
    )
    return found, wanted


# --- as a pool's kernels ------------------------------------------------------------------------

LAYERS = [LayerShape(2, 64, 64, mx.float32)] * 2
PROMPTS = (21, 300)
WIDTHS = (1, 1, 3, *[1] * 16)
"""Tokens that two rows get in call after call."""


def apart(kernels: Kernels, window: int | None) -> float:
    """The largest difference from MLX's own operations, of two rows that decode.

    float32; outputs are means of values drawn from a normal distribution.
    """
    batches = [_rows(PagedPool(LAYERS, k)) for k in (MlxKernels(), kernels)]
    largest = 0.0
    for step, width in enumerate(WIDTHS):
        for place in range(len(LAYERS)):
            wanted, found = (_decoded(batch[place], step, width, window) for batch in batches)
            # NaN is the largest difference of all
            gap = mx.nan_to_num(mx.abs(found - wanted), nan=mx.inf)
            largest = max(largest, np.array(gap).max().item())
    return largest


def _rows(pool: PagedPool) -> list[PagedBatchKVCache]:
    """Rows whose prompts are there, a batch a layer."""
    rows = []
    for length in PROMPTS:
        rows.append(paged_caches(PagedSequence(pool)))
        for cache in rows[-1]:
            cache.update_and_fetch(*_keys_and_values(1, length, length))
    return [PagedKVCache.merge(layers) for layers in zip(*rows, strict=True)]


def _decoded(batch: PagedBatchKVCache, step: int, width: int, window: int | None) -> mx.array:
    batch.update_and_fetch(*_keys_and_values(len(PROMPTS), width, step))
    queries = mx.random.normal((len(PROMPTS), 4, width, 64), key=mx.random.key(1000 + step))
    mask = Window(window) if window is not None else None if width == 1 else "causal"
    return batch.attend(queries, 0.125, mask, None)


def _keys_and_values(rows: int, width: int, seed: int) -> tuple[mx.array, mx.array]:
    keys = mx.random.split(mx.random.key(seed), 2)
    first, second = (mx.random.normal((rows, 2, width, 64), key=key) for key in keys)
    return first, second
