"""The last tokens of windows, oldest first, cells that are alike stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mlxnb.mlxlm.caches import Caches
from mlxnb.mlxlm.cells import of_kind, window
from mlxnb.mlxlm.door import cache as _cache


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Keys and values ``(cells, heads, tokens, dim)`` of the window cells of these numbers."""

    members: tuple[int, ...]
    keys: mx.array
    values: mx.array

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return int(self.keys.nbytes + self.values.nbytes)


Tail = list[Part]
"""The last tokens of all windows; of a window that is shorter than that, as many as it needs."""


def tail(caches: Caches, count: int) -> Tail:
    """A copy of the last ``count`` tokens of all windows, or as many as each still needs."""
    windows = of_kind(caches, "window")
    found = [_part(windows, members, count) for members in _alike(windows)]
    mx.eval([(part.keys, part.values) for part in found])
    return found


def joined(caches: Caches, tails: Sequence[Tail], length: int) -> Tail:
    """Tails that follow each other as one, with no more of it than the windows need."""
    windows = of_kind(caches, "window")
    found = []
    for number, newest in enumerate(tails[-1]):
        wanted = min(length, window(windows[newest.members[0]]))
        keys, values = _gathered([tail[number] for tail in tails], wanted)
        found.append(Part(newest.members, mx.contiguous(keys), mx.contiguous(values)))
    mx.eval([(part.keys, part.values) for part in found])
    return found


def put_tail(caches: Caches, tails: Sequence[Tail], length: int) -> None:
    """Fill empty windows from tails that follow each other, the last of which ends at ``length``.

    They hold as many tokens as the windows need, or all of the sequence.
    """
    windows = of_kind(caches, "window")
    for part in joined(caches, tails, length):
        for place, member in enumerate(part.members):
            row = slice(place, place + 1)
            _fill(windows[member], part.keys[row], part.values[row], length)


def _alike(windows: Sequence[Any]) -> list[tuple[int, ...]]:
    """The numbers of window cells, those of equal window and shape together."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, cell in enumerate(windows):
        _, heads, _, dim = cell.keys.shape
        key = (type(cell), window(cell), heads, dim, cell.values.shape[3], cell.keys.dtype)
        groups.setdefault(key, []).append(number)
    return [tuple(members) for members in groups.values()]


def _part(windows: Sequence[Any], members: tuple[int, ...], count: int) -> Part:
    count = min(count, window(windows[members[0]]))
    pairs = [_last(windows[number], count) for number in members]
    keys, values = ([pair[n] for pair in pairs] for n in (0, 1))
    return Part(members, mx.contiguous(mx.concatenate(keys)), mx.contiguous(mx.concatenate(values)))


def _last(cell: Any, count: int) -> tuple[mx.array, mx.array]:
    """A window's last tokens ``(1, heads, count, dim)``, oldest first."""
    if type(cell) is _cache.ChunkedKVCache:
        keys, values = cell.keys_and_values()
    else:
        keys, values = cell._temporal_order(cell.keys), cell._temporal_order(cell.values)
    assert keys.shape[2] >= count, "a window holds what it needs to go on"
    first = keys.shape[2] - count
    return keys[:, :, first:], values[:, :, first:]


def _gathered(parts: Sequence[Part], count: int) -> tuple[mx.array, mx.array]:
    """The last ``count`` tokens of these, oldest first."""
    keys: list[mx.array] = []
    values: list[mx.array] = []
    missing = count
    for part in reversed(parts):
        first = max(0, part.keys.shape[2] - missing)
        keys.insert(0, part.keys[:, :, first:])
        values.insert(0, part.values[:, :, first:])
        missing -= keys[0].shape[2]
        if not missing:
            break
    assert not missing, "tails hold what the windows need"
    return mx.concatenate(keys, axis=2), mx.concatenate(values, axis=2)


def _fill(cell: Any, keys: mx.array, values: mx.array, length: int) -> None:
    """Arrays of its own, as if the cell had come to this by itself."""
    cell.keys, cell.values = mx.contiguous(keys), mx.contiguous(values)
    cell.offset = length
    if type(cell) is _cache.ChunkedKVCache:
        cell.start_position = length - keys.shape[2]
    else:
        cell._idx = keys.shape[2]
    mx.eval(cell.keys, cell.values)
