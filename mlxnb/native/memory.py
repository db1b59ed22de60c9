"""Weights and KV in large pages: a decode step reads all of them, and reads them faster there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from mlxnb.native.extension import extension

CHUNK = 64 * 2**20
"""Bytes of an arena: what a load holds more than the model."""


def spread(array: mx.array) -> mx.array:
    """A copy in large pages, at the start of a cache line; without the extension the same array."""
    native = extension()
    if native is None:
        return array
    mx.eval(array)
    copy: mx.array = native.Arena(native.Arena.room(array)).take([array])[0]
    return copy


def gather(model: Any, chunk: int = CHUNK) -> None:
    """Move a model's arrays into arenas, module by module: its parameters, and private ones too.

    An arena is one MLX array's memory, ``chunk`` bytes or a larger parameter's; it is freed when
    the last parameter in it is gone. Without the extension nothing moves.
    """
    native = extension()
    if native is None:
        return
    mx.eval([list(arrays.values()) for _, arrays in _owners(model)])
    room = native.Arena.room
    rooms = {id(x): room(x) for _, arrays in _owners(model) for x in arrays.values()}
    times = Counter(id(x) for _, arrays in _owners(model) for x in arrays.values())
    sizes = iter(_sizes(list(rooms.values()), chunk))
    shared: dict[int, tuple[mx.array, mx.array]] = {}  # the old ones too: their ids stay theirs
    arena, free = None, 0
    for module, arrays in _owners(model):
        for name, array in arrays.items():
            if id(array) in shared:
                module[name] = shared[id(array)][1]
                continue
            if arena is None or free == 0:
                free = next(sizes)
                arena = native.Arena(free)
                mx.clear_cache()  # what has moved would otherwise wait there for reuse
            (module[name],) = arena.take([array])
            free -= room(array)
            if times[id(array)] > 1:
                shared[id(array)] = (array, module[name])


def _sizes(rooms: list[int], chunk: int) -> list[int]:
    """Bytes of arenas that the arrays fill exactly, in their order."""
    sizes: list[int] = []
    for room in rooms:
        if sizes and sizes[-1] + room <= chunk:
            sizes[-1] += room
        else:
            sizes.append(room)
    return sizes


def _owners(model: Any) -> Iterator[tuple[Any, dict[str, mx.array]]]:
    """Each module with the arrays that it holds itself."""
    for module in model.modules():
        yield module, {k: x for k, x in module.items() if isinstance(x, mx.array) and x.size}
