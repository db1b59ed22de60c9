"""Decode attention over blocks on Metal.

The kernels have been run by a C++ stand-in for Metal only, so they are off unless
``MLXNB_METAL=1``. Writing stays MLX's own (a custom kernel always allocates its outputs), and so
does the attention of prompts.

Blocks in more slabs than a kernel takes are attended to by several launches, whose parts are put
together as the parts of one launch are: there is no limit on slabs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from mlxnb.cache.paged_call import Call
from mlxnb.cache.paged_kernels import MlxKernels, in_blocks
from mlxnb.cache.paged_launch import (
    MAX_SLABS,
    MERGE_BODY,
    SIMDGROUPS,
    Launch,
    Shape,
    attention_body,
    rounded,
)
from mlxnb.cache.pool import BLOCK, SLAB

if TYPE_CHECKING:
    from mlxnb.cache.paged_pool import PagedPool

MAX_WIDTH = 8
"""Tokens a row that the kernel takes; more are attended to over a gathered copy."""
PART_BLOCKS = 16
"""Blocks of a row that one threadgroup attends to."""
DIMS = frozenset((64, 80, 96, 128, 256))
"""Dims of keys and values that the kernel is for."""

Ints = np.ndarray[Any, np.dtype[np.int32]]


def wanted() -> bool:
    """Whether the kernels are switched on, and Metal is what runs."""
    on = os.environ.get("MLXNB_METAL") == "1"
    return on and mx.metal.is_available() and mx.default_device() == mx.Device(mx.gpu)


@dataclass(frozen=True, slots=True)
class Batch:
    """Blocks that one launch attends to: some slabs, and each row's blocks in them.

    ``table`` is ``(rows, entries, 2)``: place of a block in these slabs (-1: none), and its
    number in the row.
    """

    slabs: list[int]
    table: Ints

    @property
    def parts(self) -> int:
        """Threadgroups that share a row."""
        entries: int = self.table.shape[1]
        return max(1, -(-entries // PART_BLOCKS))


def batches(places: Ints, ranges: Sequence[range]) -> list[Batch]:
    """Split the blocks of a table ``(rows, blocks)``, of which rows use those in ``ranges``."""
    used = [
        [(int(row[number]), number) for number in numbers]
        for row, numbers in zip(places, ranges, strict=True)
    ]
    slabs = sorted({place // SLAB for row in used for place, _ in row})
    starts = range(0, max(1, len(slabs)), MAX_SLABS)
    return [_batch(used, slabs[at : at + MAX_SLABS]) for at in starts]


def _batch(used: list[list[tuple[int, int]]], slabs: list[int]) -> Batch:
    first = {slab: number * SLAB for number, slab in enumerate(slabs)}
    rows = [
        [(first[p // SLAB] + p % SLAB, number) for p, number in row if p // SLAB in first]
        for row in used
    ]
    table = np.full((len(rows), max(1, *map(len, rows), 1), 2), -1, np.int32)
    for number, row in enumerate(rows):
        table[number, : len(row)] = np.array(row, np.int32).reshape(-1, 2)
    return Batch(slabs, table)


@dataclass(slots=True)
class Work:
    """A call's rows as the kernels take them; layers share it.

    ``lengths`` and ``written`` are those of ``paged_attention``; ``tail`` is how many tokens of
    each row come after those in blocks.
    """

    places: Ints
    lengths: Sequence[int]
    written: Sequence[int]
    heads: int
    kv_heads: int
    width: int
    window: int | None
    scale: float
    sinks: bool
    tail: int = 0
    batches: list[Batch] = field(init=False)
    infos: list[mx.array] = field(init=False)

    def __post_init__(self) -> None:
        pairs = zip(self.lengths, self.written, strict=True)
        self.batches = batches(self.places, [self._seen(*pair) for pair in pairs])
        self.infos = [self._info(number) for number in range(len(self.batches))]

    def _seen(self, length: int, written: int) -> range:
        """Numbers of the blocks that a row's queries look at."""
        first = 0 if self.window is None else max(0, length - self.width + 1 - self.window)
        return range(first // BLOCK, -(-min(length, written) // BLOCK))

    def _info(self, number: int) -> mx.array:
        """What the kernel's ``read_info`` reads, and the rows' lengths and tables after it."""
        batch = self.batches[number]
        (scale,) = np.array([self.scale], np.float32).view(np.int32).tolist()
        sinks = int(self.sinks and number == 0)  # in the sum once
        head = [len(self.lengths), self.heads, self.kv_heads, self.width, batch.table.shape[1]]
        head += [batch.parts, self.window or 0, sinks, scale, self.tail if number == 0 else 0]
        rest = batch.table.ravel().tolist()
        return mx.array([*head, *self.lengths, *self.written, *rest], dtype=mx.int32)


Run = Callable[[Launch], list[mx.array]]


def attend(
    work: Work,
    queries: mx.array,
    keys: Sequence[mx.array],
    values: Sequence[mx.array],
    layer: int,
    sinks: mx.array | None,
    tail: tuple[mx.array, mx.array] | None = None,
    run: Run = Launch.run,
) -> mx.array:
    """``paged_attention`` by the kernels; arguments as there."""
    # a kernel has all of its inputs: what is not there is some array that it does not read
    padded = queries if sinks is None else mx.pad(sinks, (0, 8)).astype(queries.dtype)
    more = {
        "tail_keys": queries if tail is None else tail[0],
        "tail_values": queries if tail is None else tail[1],
        "sinks": padded,
    }
    launches = [
        _launch(work, number, queries, keys, values, layer, more)
        for number in range(len(work.batches))
    ]
    if len(launches) == 1 and work.batches[0].parts == 1:
        return run(launches[0])[0]
    outputs = [run(launch) for launch in launches]
    parts, tops = (mx.concatenate([o[i] for o in outputs], axis=3) for i in (0, 1))
    return run(_merge(parts, tops, queries.dtype))[0]


def _launch(
    work: Work,
    number: int,
    queries: mx.array,
    keys: Sequence[mx.array],
    values: Sequence[mx.array],
    layer: int,
    more: dict[str, mx.array],
) -> Launch:
    batch = work.batches[number]
    used = batch.slabs or [0]
    count = rounded(len(used))
    slabs = [used[min(n, len(used) - 1)] for n in range(count)]
    dtype, dim, value_dim = queries.dtype, queries.shape[-1], values[0].shape[-1]
    shape = (len(work.lengths), work.heads, work.width)
    whole = len(work.batches) == 1 and batch.parts == 1
    outputs: dict[str, tuple[Shape, mx.Dtype]] = {"out": ((*shape, value_dim), dtype)}
    if not whole:
        outputs = {
            "parts": ((*shape, batch.parts, value_dim), mx.float32),
            "tops": ((*shape, batch.parts, 4), mx.float32),
        }
    sizes = {"D": dim, "V": value_dim, "N": count, "SIMDS": SIMDGROUPS, "BLOCK": BLOCK}
    return Launch(
        name="mlxnb_paged_attention" if whole else "mlxnb_paged_parts",
        body=attention_body(count, whole),
        inputs={
            "queries": queries,
            **{f"keys_{n}": keys[slab] for n, slab in enumerate(slabs)},
            **{f"values_{n}": values[slab] for n, slab in enumerate(slabs)},
            **more,
            "info": work.infos[number],
            "layer": _number(layer),
        },
        outputs=outputs,
        template=[("T", dtype), *sizes.items(), ("SLOTS", SLAB)],
        groups=(work.heads * work.width, len(work.lengths), batch.parts),
        lanes=32 * SIMDGROUPS,
    )


def _merge(parts: mx.array, tops: mx.array, dtype: mx.Dtype) -> Launch:
    *shape, count, value_dim = parts.shape
    return Launch(
        name="mlxnb_merge_parts",
        body=MERGE_BODY,
        inputs={"parts": parts, "tops": mx.contiguous(tops), "count": _number(count)},
        outputs={"out": ((*shape, value_dim), dtype)},
        template=[("T", dtype), ("V", value_dim)],
        groups=(int(np.prod(shape)), 1, 1),
        lanes=32,
    )


@cache
def _number(value: int) -> mx.array:
    """A scalar, made once: layers and counts recur at every step."""
    return mx.array(value, dtype=mx.int32)


# --- as a pool's kernels ------------------------------------------------------------------------


class MetalKernels(MlxKernels):
    """MLX's writes, and our attention of a few tokens a row.

    Parameters
    ----------
    run
        What runs a launch; tests run it without Metal.
    """

    def __init__(self, run: Run = Launch.run) -> None:
        super().__init__()
        self._run = run

    def attend(
        self,
        pool: PagedPool,
        call: Call,
        layer: int,
        queries: mx.array,
        scale: float,
        window: int | None,
        sinks: mx.array | None,
    ) -> mx.array:
        """Read the blocks in place, unless there are many queries or a dim that is not known."""
        group, place = pool.place(layer)
        shape = pool.layers[layer]
        if call.width > MAX_WIDTH or not {shape.key_dim, shape.value_dim} <= DIMS:
            return super().attend(pool, call, layer, queries, scale, window, sinks)
        tail = self.tail(call, layer)
        waiting = 0 if tail is None else tail[0].shape[2]
        key = (group, queries.shape[1], window, scale, sinks is None, waiting)
        if key not in call.native:
            call.native[key] = Work(
                call.places,
                [start + call.width for start in call.starts],
                in_blocks(call, tail),
                queries.shape[1],
                shape.heads,
                call.width,
                window,
                scale,
                sinks is not None,
                waiting,
            )
        slabs = [pool.arrays(name, group) for name in call.slabs]
        keys, values = [k for k, _ in slabs], [v for _, v in slabs]
        return attend(call.native[key], queries, keys, values, place, sinks, tail, self._run)


def metal_kernels() -> MetalKernels | None:
    """The Metal kernels, if they are switched on."""
    return MetalKernels() if wanted() else None
