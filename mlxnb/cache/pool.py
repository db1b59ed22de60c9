"""The block pool: KV of fixed runs of tokens, all layers stacked, written in place.

A slab is one array of keys and one of values for each shape that layers have, so the number of
arrays grows with slabs and not with tokens × layers. Used on the engine's thread alone.

Shapes: slab ``(layers, heads, SLAB, BLOCK, dim)``, so that neighbouring blocks of a sequence are
read in one go; a run handed in or out is a list, a layer an
entry, of keys and values ``(heads, tokens, dim)``.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxnb.mlxlm import LayerShape, Run

__all__ = ["BLOCK", "SLAB", "BlockPool", "Run"]

BLOCK = 16
"""Tokens in a block."""
SLAB = 16
"""Blocks in a slab."""


@dataclass(slots=True)
class _Slab:
    """``keys[g]`` and ``values[g]``: the arrays of layer group ``g``."""

    keys: list[mx.array]
    values: list[mx.array]
    free: list[int]


class BlockPool:
    """Slots for blocks of one model; a slot is ``(slab, row)``.

    Parameters
    ----------
    layers
        The shape of each layer's KV.

    Attributes
    ----------
    token_bytes, slab_bytes
        Bytes of one token's KV in all layers, and of one slab.
    free
        Slots that can be taken without allocating.
    """

    def __init__(self, layers: Sequence[LayerShape]) -> None:
        self.layers = list(layers)
        self.token_bytes = sum(shape.nbytes for shape in self.layers)
        self.slab_bytes = self.token_bytes * BLOCK * SLAB
        self.free = 0
        self._groups: dict[LayerShape, list[int]] = {}
        for number, shape in enumerate(self.layers):
            self._groups.setdefault(shape, []).append(number)
        self._slabs: dict[int, _Slab] = {}
        self._next = 0
        self._filling = -1

    @property
    def nbytes(self) -> int:
        """Bytes allocated, free slots included."""
        return len(self._slabs) * self.slab_bytes

    @property
    def slabs(self) -> int:
        """Number of slabs."""
        return len(self._slabs)

    @property
    def groups(self) -> list[tuple[LayerShape, list[int]]]:
        """Each shape, and the numbers of the layers that have it."""
        return list(self._groups.items())

    def grow(self) -> None:
        """Allocate one more slab."""
        keys, values = [], []
        for shape, members in self._groups.items():
            size = (len(members), shape.heads, SLAB, BLOCK)
            keys.append(self._zeros((*size, shape.key_dim), shape.dtype))
            values.append(self._zeros((*size, shape.value_dim), shape.dtype))
        mx.eval(keys, values)
        self._slabs[self._next] = _Slab(keys, values, list(range(SLAB)))
        self._next += 1
        self.free += SLAB

    def _zeros(self, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
        """Memory of a new slab."""
        return mx.zeros(shape, dtype)

    def take(self) -> tuple[int, int]:
        """A free slot, from the fullest slab that has one."""
        filling = self._slabs.get(self._filling)
        if filling is None or not filling.free:
            with_room = ((len(s.free), name) for name, s in self._slabs.items() if s.free)
            _, self._filling = min(with_room)
            filling = self._slabs[self._filling]
        self.free -= 1
        return self._filling, filling.free.pop(0)

    def give_back(self, slot: tuple[int, int]) -> None:
        """Free a slot; what is in it may be overwritten from now on."""
        insort(self._slabs[slot[0]].free, slot[1])
        self.free += 1

    def emptiest(self) -> int | None:
        """The slab with the most free slots; None without slabs."""
        return max(self._slabs, key=lambda name: len(self._slabs[name].free), default=None)

    def is_empty(self, slab: int) -> bool:
        """Whether no slot of the slab is taken."""
        return len(self._slabs[slab].free) == SLAB

    def close(self, slab: int) -> list[int]:
        """Stop handing out the slab's slots; returns its rows that are taken."""
        free = self._slabs[slab].free
        taken = sorted(set(range(SLAB)) - set(free))
        self.free -= len(free)
        free.clear()
        return taken

    def drop(self, slab: int) -> None:
        """Give the memory of a slab that was closed back."""
        del self._slabs[slab]

    def write(self, slots: Sequence[tuple[int, int]], run: Run) -> None:
        """Store a run of tokens in slots, ``BLOCK`` tokens each; the last may be shorter.

        Each write is evaluated at once: a pending read of a slab would make MLX copy the slab. No
        write is of a whole slab: MLX would take what is written in its place, memory and all.
        """
        for group, (shape, members) in enumerate(self._groups.items()):
            keys = _stack([run[n][0] for n in members], len(slots))
            values = _stack([run[n][1] for n in members], len(slots))
            assert keys.dtype == shape.dtype, "a block keeps the dtype of its model's KV"
            mx.eval(keys, values)
            for first, last, slab, row in _runs(slots, SLAB // 2):
                part = self._slabs[slab]
                rows = slice(row, row + last - first)
                part.keys[group][:, :, rows] = keys[:, :, first:last]
                part.values[group][:, :, rows] = values[:, :, first:last]
                mx.eval(part.keys[group], part.values[group])

    def read(self, slots: Sequence[tuple[int, int]], length: int, capacity: int) -> Run:
        """A copy of the first ``length`` tokens in ``slots``, padded to ``capacity``.

        Arrays are ``(1, heads, capacity, dim)`` and evaluated.
        """
        layers: list[tuple[mx.array, mx.array] | None] = [None] * len(self.layers)
        for group, members in enumerate(self._groups.values()):
            parts = [(self._slabs[s], slice(r, r + b - a)) for a, b, s, r in _runs(slots)]
            for place, number in enumerate(members):
                keys = [slab.keys[group][place, :, rows] for slab, rows in parts]
                values = [slab.values[group][place, :, rows] for slab, rows in parts]
                layers[number] = (
                    _unstack(keys, length, capacity),
                    _unstack(values, length, capacity),
                )
        run = [layer for layer in layers if layer is not None]
        mx.eval(run)
        return run

    def move(self, source: tuple[int, int], target: tuple[int, int]) -> None:
        """Copy one block to another slot."""
        old, new = self._slabs[source[0]], self._slabs[target[0]]
        for group in range(len(self._groups)):
            for a, b in ((old.keys, new.keys), (old.values, new.values)):
                block = mx.contiguous(a[group][:, :, source[1]])
                mx.eval(block)
                b[group][:, :, target[1]] = block
                mx.eval(b[group])


def _runs(slots: Sequence[tuple[int, int]], longest: int = SLAB) -> list[tuple[int, int, int, int]]:
    """Stretches of consecutive slots as (first index, last index, slab, first row)."""
    runs: list[tuple[int, int, int, int]] = []
    for index, (slab, row) in enumerate(slots):
        if runs:
            first, _, last_slab, first_row = runs[-1]
            follows = slab == last_slab and row == first_row + index - first
            if follows and index - first < longest:
                runs[-1] = (first, index + 1, slab, first_row)
                continue
        runs.append((index, index + 1, slab, row))
    return runs


def _stack(layers: list[mx.array], blocks: int) -> mx.array:
    """Layers' ``(heads, tokens, dim)`` as ``(layers, heads, blocks, BLOCK, dim)``."""
    stacked = mx.stack(layers)
    count, heads, tokens, dim = stacked.shape
    if tokens < blocks * BLOCK:
        stacked = mx.pad(stacked, [(0, 0), (0, 0), (0, blocks * BLOCK - tokens), (0, 0)])
    return stacked.reshape(count, heads, blocks, BLOCK, dim)


def _unstack(parts: list[mx.array], length: int, capacity: int) -> mx.array:
    """Parts ``(heads, blocks, BLOCK, dim)`` as ``(1, heads, capacity, dim)``."""
    blocks = parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=1)
    heads, count, _, dim = blocks.shape
    tokens = blocks.reshape(1, heads, count * BLOCK, dim)
    padding = mx.zeros((1, heads, capacity - length, dim), tokens.dtype)
    return mx.concatenate([tokens[:, :, :length], padding], axis=2)
