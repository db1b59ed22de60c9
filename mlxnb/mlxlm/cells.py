"""The cells of a model's caches: what each layer keeps of the past, and in which way.

A layer's cache is a cell, or a list of cells. ``kept`` and ``quantized`` cells hold the keys and
values of all tokens; ``window`` cells those of the last ones; ``state`` cells a running state of
fixed size; ``other`` cells are of no class that is known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from mlxnb.mlxlm.door import cache as _cache

Kind = Literal["kept", "quantized", "window", "state", "other"]


def cells(caches: Iterable[Any]) -> list[Any]:
    """The cells of one sequence's caches, lists taken apart, in order."""
    found: list[Any] = []
    for cache in caches:
        if isinstance(cache, _cache.CacheList):
            found.extend(cells(cache.caches))
        else:
            found.append(cache)
    return found


def kind_of(cell: Any) -> Kind:
    """What a cell is."""
    if type(cell) is _cache.KVCache:
        return "kept"
    if type(cell) is _cache.QuantizedKVCache:
        return "quantized"
    if type(cell) is _cache.ChunkedKVCache:
        return "window"
    if type(cell) is _cache.RotatingKVCache and not cell.keep:
        return "window"
    return "state" if type(cell) is _cache.ArraysCache else "other"


def known(caches: Iterable[Any]) -> bool:
    """Whether all cells are of a kind that can be saved and restored; False without any."""
    kinds = {kind_of(cell) for cell in cells(caches)}
    return bool(kinds) and "other" not in kinds


def of_kind(caches: Iterable[Any], *kinds: Kind) -> list[Any]:
    """The cells of these kinds, in order."""
    return [cell for cell in cells(caches) if kind_of(cell) in kinds]


def window(cell: Any) -> int:
    """How many of the last tokens a window cell needs to go on."""
    return int(cell.chunk_size if type(cell) is _cache.ChunkedKVCache else cell.max_size)


def reach(caches: Iterable[Any]) -> int:
    """How far back the longest window goes, in tokens; 0 without windows."""
    return max(map(window, of_kind(caches, "window")), default=0)


def fixed_bytes(caches: Iterable[Any]) -> int:
    """Bytes that do not grow with the sequence: states, and windows when they are full.

    The caches hold at least one token.
    """
    windows = of_kind(caches, "window")
    full = sum(window(c) * (c.nbytes // max(1, c.keys.shape[2])) for c in windows)
    states = sum(int(c.nbytes) for c in of_kind(caches, "state") if not c.empty())
    return int(full) + states
