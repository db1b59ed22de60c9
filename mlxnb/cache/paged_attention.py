"""Attention over keys and values that lie in blocks, found through a table.

This is the plain MLX form: it gathers the blocks and calls MLX's own attention. It says what the
native kernels have to compute, and they are tested against it.

Shapes: a slab of keys or values is ``(layers, heads, SLAB, BLOCK, dim)``. A block table is
``(rows, blocks)`` int32; an entry is the position of the block's slab in the list of slabs × SLAB
plus its row in that slab, and what a row of the batch does not use is any valid entry.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from mlxnb.cache.pool import BLOCK


def gather(slabs: Sequence[mx.array], table: mx.array, layer: int) -> mx.array:
    """A copy of one layer's blocks, ``(rows, heads, blocks × BLOCK, dim)``."""
    blocks = mx.concatenate([slab[layer] for slab in slabs], axis=1)[:, table]
    heads, rows, count, _, dim = blocks.shape
    return blocks.transpose(1, 0, 2, 3, 4).reshape(rows, heads, count * BLOCK, dim)


def visible(lengths: mx.array, queries: int, keys: mx.array, window: int | None) -> mx.array:
    """Which keys, at these positions, each query sees: ``(rows, 1, queries, keys)`` bool.

    ``keys`` is ``(keys,)``, or ``(rows, keys)`` where rows have them at different positions.
    Query ``i`` of row ``b`` stands at ``lengths[b] - queries + i`` and sees positions up to its
    own, no more than ``window`` of them.
    """
    at = (lengths[:, None] - queries + mx.arange(queries))[:, None, :, None]
    key = keys if keys.ndim == 1 else keys[:, None, None, :]
    mask = key <= at
    return mask if window is None else mask & (key > at - window)


def paged_attention(
    queries: mx.array,
    keys: Sequence[mx.array],
    values: Sequence[mx.array],
    table: mx.array,
    lengths: mx.array,
    layer: int,
    scale: float,
    window: int | None = None,
    sinks: mx.array | None = None,
    written: mx.array | None = None,
    tail: tuple[mx.array, mx.array] | None = None,
) -> mx.array:
    """Causal attention of the newest tokens of each row over all of the row's tokens.

    Parameters
    ----------
    queries
        ``(rows, query heads, n, key dim)``; query heads are a multiple of the slabs' heads.
    keys, values
        The slabs, of dims ``key dim`` and ``value dim``.
    table
        ``(rows, blocks)`` int32.
    lengths
        ``(rows,)`` int32, tokens of each row including the ``n`` new ones.
    layer
        Place of the layer in the slabs.
    window
        A query sees so many positions at most, its own included.
    sinks
        ``(query heads,)``: a logit that takes part in each softmax and has no value.
    written
        ``(rows,)`` int32, tokens in the blocks, if they are less: the rest is padding or ``tail``.
    tail
        Keys and values ``(rows, heads, t, dim)`` of the last ``t`` tokens, if those are not in
        the blocks.

    Returns
    -------
    mx.array
        ``(rows, query heads, n, value dim)``.
    """
    written = lengths if written is None else written
    blocks = table.shape[1] * BLOCK
    spots = mx.arange(blocks)
    there = spots < written[:, None]
    k, v = gather(keys, table, layer), gather(values, table, layer)
    # a block may end in what another sequence left there, and 0 × NaN would be NaN
    v = mx.where(there[:, None, :, None], v, mx.zeros((), v.dtype))
    if tail is None:
        mask = visible(lengths, queries.shape[2], spots, window)
    else:
        k, v = mx.concatenate([k, tail[0]], axis=2), mx.concatenate([v, tail[1]], axis=2)
        count = tail[0].shape[2]
        last = (lengths - count)[:, None] + mx.arange(count)
        spots = mx.concatenate([mx.broadcast_to(spots, (len(last), blocks)), last], axis=1)
        there = mx.concatenate([there, mx.ones(last.shape, mx.bool_)], axis=1)
        mask = visible(lengths, queries.shape[2], spots, window) & there[:, None, None, :]
    return mx.fast.scaled_dot_product_attention(queries, k, v, scale=scale, mask=mask, sinks=sinks)
