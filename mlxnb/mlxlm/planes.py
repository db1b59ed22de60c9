"""Keys and values of all tokens as planes: pairs of arrays in which a token is a row.

A kept cell is one plane. A quantized one is three: packed values, scales and biases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mlxnb.mlxlm.caches import Caches, new_caches
from mlxnb.mlxlm.cells import kind_of, of_kind

Run = list[tuple[mx.array, mx.array]]
"""Keys and values of some tokens, a plane an entry."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Shape of one plane's KV of one token: ``(heads, key_dim)`` and ``(heads, value_dim)``."""

    heads: int
    key_dim: int
    value_dim: int
    dtype: mx.Dtype

    @property
    def nbytes(self) -> int:
        """Bytes of one token in this layer."""
        return self.heads * (self.key_dim + self.value_dim) * int(self.dtype.size)


def shapes(caches: Caches) -> list[LayerShape]:
    """The planes' shapes; the caches hold at least one token."""
    return [
        LayerShape(keys.shape[1], keys.shape[3], values.shape[3], keys.dtype)
        for keys, values in _planes(caches)
    ]


def read(caches: Caches, start: int, end: int) -> Run:
    """Keys and values ``(heads, end - start, dim)`` of each plane."""
    return [(k[0, :, start:end], v[0, :, start:end]) for k, v in _planes(caches)]


def _planes(caches: Caches) -> Iterator[tuple[mx.array, mx.array]]:
    for cell in of_kind(caches, "kept", "quantized"):
        if kind_of(cell) == "kept":
            yield cell.keys, cell.values
        else:
            yield from zip(cell.keys, cell.values, strict=True)


def from_arrays(model: Any, run: Sequence[tuple[mx.array, mx.array]], length: int) -> Caches:
    """Caches of ``length`` tokens over arrays ``(1, heads, capacity, dim)``, capacity ≥ length.

    Cells that do not keep all tokens are empty.
    """
    caches, rest = new_caches(model), iter(run)
    for cell in of_kind(caches, "kept", "quantized"):
        if kind_of(cell) == "kept":
            cell.keys, cell.values = next(rest)
        else:
            three = (next(rest), next(rest), next(rest))
            cell.keys, cell.values = (tuple(part) for part in zip(*three, strict=True))
        cell.offset = length
    assert next(rest, None) is None, "an array for each plane"
    return caches
