"""Launches of the Metal kernels, as ``mx.fast.metal_kernel`` takes them.

The kernels' text is ``native/metal``; what is made here are the few lines that name the buffers.
A Metal function takes 31 buffers and MLX binds one for each array, so a kernel gets at most 11
slabs of keys and 11 of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx

MAX_SLABS = 11
"""Slabs of keys, and of values, that one kernel is given."""
SIMDGROUPS = 8
"""Simdgroups of a threadgroup of attention."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel, as ``mx.fast.metal_kernel`` takes it."""

    name: str
    body: str
    inputs: dict[str, mx.array]
    outputs: dict[str, tuple[Shape, mx.Dtype]]
    template: list[tuple[str, Any]]
    groups: tuple[int, int, int]
    lanes: int

    def run(self, verbose: bool = False) -> list[mx.array]:
        """Launch it on Metal; ``verbose`` prints the source."""
        x, y, z = self.groups
        made: Any = _kernel(self.name, tuple(self.inputs), tuple(self.outputs), self.body)
        outputs: list[mx.array] = made(
            inputs=list(self.inputs.values()),
            template=self.template,
            grid=(x * self.lanes, y, z),
            threadgroup=(self.lanes, 1, 1),
            output_shapes=[shape for shape, _ in self.outputs.values()],
            output_dtypes=[dtype for _, dtype in self.outputs.values()],
            verbose=verbose,
        )
        return outputs


@cache
def _kernel(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], body: str) -> Any:
    return mx.fast.metal_kernel(
        name=name,
        input_names=list(inputs),
        output_names=list(outputs),
        source=body,
        header=_header(),
    )


@cache
def _header() -> str:
    return source(Path(__file__).resolve().parents[1])


def source(package: Path) -> str:
    """The kernels' text: in the package where that is installed, beside it in the source tree."""
    places = (package / "metal", package.parent / "native" / "metal")
    found = next(place for place in places if place.is_dir())
    return (found / "paged_attention.metal").read_text("utf-8")


_NAMES = (
    "Slabs<T, N> keys = {{{{{keys}}}}};\n"
    "Slabs<T, N> values = {{{{{values}}}}};\n"
    "threadgroup float shared[SIMDS * (V + 2)];\n"
)
_ATTEND = (
    "paged_attention<T, {output}, D, V, N, SIMDS, BLOCK, SLOTS, {whole}>(queries, keys, values, "
    "tail_keys, tail_values, sinks, info, layer, {outputs}, shared, threadgroup_position_in_grid, "
    "simdgroup_index_in_threadgroup, thread_index_in_simdgroup);"
)
MERGE_BODY = (
    "merge_parts<T, V>(parts, tops, count, out, threadgroup_position_in_grid.x, "
    "thread_index_in_simdgroup);"
)


def attention_body(slabs: int, whole: bool) -> str:
    """The body of a kernel over so many slabs; not ``whole``: it makes parts for a merge."""
    keys, values = (", ".join(f"{n}_{i}" for i in range(slabs)) for n in ("keys", "values"))
    last = _ATTEND.format(
        output="T" if whole else "float",
        outputs="out, (device float*)nullptr" if whole else "parts, tops",
        whole=str(whole).lower(),
    )
    return _NAMES.format(keys=keys, values=values) + last


def rounded(slabs: int) -> int:
    """So that few kernels are compiled: 1, 2, 4, 8 or 11 slabs."""
    return next(count for count in (1, 2, 4, 8, MAX_SLABS) if count >= slabs)
