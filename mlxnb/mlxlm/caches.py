"""The caches of one sequence as a whole.

Shapes: a layer's keys are ``(rows, heads, tokens, head_dim)``; ``tokens`` beyond ``offset`` are
spare capacity. A quantized cell has three such arrays in place of one.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from mlxnb.mlxlm.cells import cells, kind_of, of_kind
from mlxnb.mlxlm.door import cache as _cache

Caches = list[Any]

KV_GROUPS = (64, 32)
"""Numbers of values that may share a scale in a quantized cell, the best first."""


def new_caches(model: Any) -> Caches:
    """Empty caches of one sequence, a cache a layer, as the model wants them."""
    return list(_cache.make_prompt_cache(model))


def quantize_kv(model: Any, bits: int, group: int) -> None:
    """Let the caches that a model makes from now on keep keys and values in ``bits`` bits.

    Cells that do not keep all tokens stay as they are.
    """
    make = model.make_cache if hasattr(model, "make_cache") else None

    def quantized(cache: Any) -> Any:
        if isinstance(cache, _cache.CacheList):
            cache.caches = tuple(map(quantized, cache.caches))
        if kind_of(cache) == "kept":
            return _cache.QuantizedKVCache(group_size=group, bits=bits)
        return cache

    def make_cache() -> Caches:
        plain = make() if make is not None else [_cache.KVCache() for _ in model.layers]
        return list(map(quantized, plain))

    model.make_cache = make_cache


def rewindable(caches: Caches) -> bool:
    """Whether every layer keeps all its keys, so that any prefix of it can be reused."""
    return bool(caches) and all(kind_of(c) in ("kept", "quantized") for c in cells(caches))


def plain(caches: Caches) -> bool:
    """Whether every layer has a cache of its own kind that keeps all keys as they are."""
    return bool(caches) and all(kind_of(cache) == "kept" for cache in caches)


def evaluate(caches: Caches) -> None:
    """Compute what is pending in the caches."""
    mx.eval([c.state for c in caches])


def nbytes(caches: Caches) -> int:
    """Bytes that the caches hold, spare capacity included."""
    return sum(0 if c.empty() else int(c.nbytes) for c in cells(caches))


def lengths(caches: Caches) -> set[int]:
    """The layers' numbers of tokens, as far as they count them: one, if the caches are sound."""
    return {c.offset for c in cells(caches) if hasattr(c, "offset")}


def trim(caches: Caches, length: int) -> None:
    """Forget what lies beyond ``length`` tokens, which must be there; nothing is copied."""
    for cell in cells(caches):
        if getattr(cell, "offset", length) > length:
            cell.trim(cell.offset - length)


def capacity(caches: Caches) -> int:
    """Tokens that contiguous caches have room for; 0 where no cell keeps all tokens."""
    kept = [array for cell in of_kind(caches, "kept", "quantized") for array in _arrays(cell)]
    return min((int(array.shape[2]) for array in kept), default=0)


def widen(caches: Caches, capacity: int) -> None:
    """Give contiguous caches that hold something room for ``capacity`` tokens.

    mlx-lm would let them grow by itself, a step a chunk, to sizes that nobody has reserved. A
    layer at a time, so that no more than one is there twice.
    """
    for cell in of_kind(caches, "kept", "quantized"):
        spare = capacity - _arrays(cell)[0].shape[2] if _arrays(cell) else 0
        if spare > 0:
            cell.keys = _widened(cell.keys, spare)
            cell.values = _widened(cell.values, spare)
            mx.eval(cell.keys, cell.values)


def _arrays(cell: Any) -> list[mx.array]:
    """A cell's arrays of keys: one, or three of a quantized one; none if it is empty."""
    if cell.keys is None:
        return []
    return [cell.keys] if isinstance(cell.keys, mx.array) else list(cell.keys)


def _widened(keys: Any, spare: int) -> Any:
    if not isinstance(keys, mx.array):
        return tuple(_widened(part, spare) for part in keys)
    rows, heads, _, dim = keys.shape
    return mx.concatenate([keys, mx.zeros((rows, heads, spare, dim), keys.dtype)], axis=2)


def token_buffer(tokens: list[int]) -> Any:
    """mlx-lm's growing token array: ``update_and_fetch((n,) array) → (all,) array``."""
    return _cache.TokenBuffer(tokens)
