"""KV and checkpoints as bytes, and back.

A block is the keys and values of each group of layers of equal shape, ``(layers, heads, BLOCK,
dim)``, one after the other. A checkpoint is a header in JSON, and its arrays.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from mlxnb import mlxlm
from mlxnb.cache.checkpoint import Checkpoint, Stretch
from mlxnb.cache.pool import BLOCK, BlockPool, Run

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_LENGTH = struct.Struct("<I")


# --- blocks -----------------------------------------------------------------------------------


def pack_blocks(pool: BlockPool, run: Run) -> list[memoryview]:
    """The bytes of each block of a run, of keys and values ``(heads, tokens, dim)`` a plane."""
    if not run:
        return []
    sides = [_rows(run, members, side) for _, members in pool.groups for side in (0, 1)]
    packed = np.concatenate([side.reshape(len(side), -1) for side in sides], axis=1)
    return [block.data for block in packed]


def _rows(run: Run, members: list[int], side: int) -> Bytes:
    """The keys or the values of a group, ``(blocks, layers, heads, BLOCK × dim)`` in bytes.

    NumPy moves them: MLX's general copy was measured to take ten times as long on a CPU.
    """
    stacked = mx.stack([run[number][side] for number in members])
    layers, heads, tokens, dim = stacked.shape
    blocks = -(-tokens // BLOCK)
    if tokens < blocks * BLOCK:
        stacked = mx.pad(stacked, [(0, 0), (0, 0), (0, blocks * BLOCK - tokens), (0, 0)])
    flat = mx.contiguous(stacked).reshape(layers, heads, blocks, BLOCK * dim).view(mx.uint8)
    mx.eval(flat)  # NumPy would wait for it with the interpreter's lock in hand
    return np.asarray(flat).transpose(2, 0, 1, 3)


def unpack_blocks(pool: BlockPool, payloads: Sequence[Any]) -> Run:
    """The run that was packed, ``BLOCK`` tokens a block.

    Raises
    ------
    ValueError
        The bytes are not of this pool.
    """
    blocks = [np.frombuffer(payload, np.uint8) for payload in payloads]
    if any(block.size != pool.token_bytes * BLOCK for block in blocks):
        raise ValueError("a block of another size")
    run: list[tuple[mx.array, mx.array] | None] = [None] * len(pool.layers)
    at = 0
    for shape, members in pool.groups if blocks else ():
        sides = []
        for dim in (shape.key_dim, shape.value_dim):
            row = (len(members), shape.heads, BLOCK * dim * int(shape.dtype.size))
            parts = [block[at : at + math.prod(row)].reshape(row) for block in blocks]
            side = mx.array(np.stack(parts, axis=2)).view(shape.dtype)
            sides.append(side.reshape(len(members), shape.heads, len(blocks) * BLOCK, dim))
            at += math.prod(row)
        for place, number in enumerate(members):
            run[number] = (sides[0][place], sides[1][place])
    return [plane for plane in run if plane is not None]


# --- checkpoints ------------------------------------------------------------------------------


def pack_checkpoint(checkpoint: Checkpoint, caches: mlxlm.Caches) -> bytes:
    """A checkpoint's bytes; ``caches`` are of its model."""
    tails = [stretch.tail for stretch in checkpoint.stretches]
    tail = mlxlm.joined(caches, tails, checkpoint.position) if tails else []
    sides = [array for part in tail for array in (part.keys, part.values)]
    arrays = [*checkpoint.states.stacks, *sides]
    header = {
        "position": checkpoint.position,
        "forms": [mlxlm.form_to_json(form) for form in checkpoint.states.forms],
        "stacks": len(checkpoint.states.stacks),
        "members": [part.members for part in tail],
        "arrays": [[str(array.dtype).rpartition(".")[2], array.shape] for array in arrays],
    }
    text = json.dumps(header).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *map(_bytes, arrays)])


def _bytes(array: mx.array) -> bytes:
    flat = mx.contiguous(array).reshape(-1).view(mx.uint8)
    mx.eval(flat)
    return np.asarray(flat).tobytes()


def unpack_checkpoint(space: str, payload: Any, reach: int) -> Checkpoint:
    """The checkpoint of model ``space`` that was packed.

    Raises
    ------
    ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error
        The bytes are none.
    """
    view = memoryview(payload)
    (length,) = _LENGTH.unpack_from(view)
    header = json.loads(bytes(view[_LENGTH.size : _LENGTH.size + length]))
    arrays = list(_arrays(view[_LENGTH.size + length :], header["arrays"]))
    mx.eval(arrays)
    count, position = int(header["stacks"]), int(header["position"])
    forms = [mlxlm.form_from_json(form) for form in header["forms"]]
    sides = arrays[count:]
    tail = [
        mlxlm.Part(tuple(members), sides[2 * number], sides[2 * number + 1])
        for number, members in enumerate(header["members"])
    ]
    stretches = (Stretch(max(0, position - reach), position, tail),) if tail else ()
    return Checkpoint(space, position, mlxlm.States(arrays[:count], forms), stretches)


def _arrays(view: memoryview, described: Sequence[Any]) -> Iterator[mx.array]:
    at = 0
    for name, shape in described:
        dtype = getattr(mx, name)
        end = at + math.prod(shape) * int(dtype.size)
        if end > len(view):
            raise ValueError("a checkpoint that is cut off")
        flat = mx.array(np.frombuffer(view[at:end], np.uint8))
        yield flat.view(dtype).reshape(shape)
        at = end
