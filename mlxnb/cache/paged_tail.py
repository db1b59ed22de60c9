"""The newest tokens of rows that decode, before MLX's operations put them into blocks.

MLX copies an array that is updated while something is still to read it, so a slab can be written
only when all that was asked for has run. Waiting for that at every layer would leave a GPU idle;
tokens are collected here instead, up to a block a row, and written together.
"""

from __future__ import annotations

import mlx.core as mx

from mlxnb.cache.paged_call import Call
from mlxnb.cache.pool import BLOCK


class Tail:
    """Tokens that follow each other in the same rows, one a row and call.

    Parameters
    ----------
    call
        The first of the calls.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self._starts = call.starts
        self._layers: dict[int, tuple[mx.array, mx.array]] = {}

    @property
    def count(self) -> int:
        """Tokens of each row, in the layers that the newest call has reached."""
        return self.call.starts[0] - self._starts[0] + 1

    def takes(self, call: Call) -> bool:
        """Whether a call is the newest one, or goes on where that one ended."""
        if call is self.call:
            return True
        follows = call.serials == self.call.serials and all(
            start == before + 1 for start, before in zip(call.starts, self.call.starts, strict=True)
        )
        return follows and self.count < BLOCK

    def add(self, call: Call, layer: int, keys: mx.array, values: mx.array) -> None:
        """A layer's new keys and values ``(rows, heads, 1, dim)``."""
        self.call = call
        if layer in self._layers:
            before = self._layers[layer]
            keys, values = (
                mx.concatenate([old, new], axis=2)
                for old, new in zip(before, (keys, values), strict=True)
            )
        self._layers[layer] = keys, values

    def of(self, layer: int) -> tuple[mx.array, mx.array] | None:
        """A layer's keys and values ``(rows, heads, n, dim)``."""
        return self._layers.get(layer)

    def arrays(self) -> list[mx.array]:
        """All of them, to be evaluated."""
        return [array for layer in self._layers.values() for array in layer]

    def writes(self) -> list[tuple[Call, int, mx.array, mx.array]]:
        """What is to be written: for each layer a call that says where, and the arrays."""
        calls: dict[int, Call] = {}
        found = []
        for layer, (keys, values) in self._layers.items():
            width = keys.shape[2]
            if width not in calls:
                counts = (width,) * len(self._starts)
                calls[width] = Call(self.call.tables, self._starts, counts, width)
            found.append((calls[width], layer, keys, values))
        return found
