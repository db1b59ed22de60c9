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
from functools import cache
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from mlxnb.cache.paged_call import Call
from mlxnb.cache.paged_kernels import MlxKernels, in_blocks
from mlxnb.cache.paged_launch import (
    MERGE_BODY,
    SIMDGROUPS,
    Launch,
    Shape,
    attention_body,
    rounded,
)
from mlxnb.cache.paged_work import Work
from mlxnb.cache.pool import BLOCK, SLAB

if TYPE_CHECKING:
    from mlxnb.cache.paged_pool import PagedPool

MAX_WIDTH = 8
"""Tokens a row that the kernel takes; more are attended to over a gathered copy."""
DIMS = frozenset((64, 80, 96, 128, 256))
"""Dims of keys and values that the kernel is for."""


def wanted() -> bool:
    """Whether the kernels are switched on, and Metal is what runs."""
    on = os.environ.get("MLXNB_METAL") == "1"
    return on and mx.metal.is_available() and mx.default_device() == mx.Device(mx.gpu)


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
