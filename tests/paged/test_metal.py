"""The Metal kernels, run by the stand-in for Metal, against attention the long way."""

from __future__ import annotations

import re
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlxnb.cache import paged_metal, paged_work
from mlxnb.cache.paged import PagedKVCache, Window, paged_caches
from mlxnb.cache.paged_check import differences
from mlxnb.cache.paged_kernels import MlxKernels
from mlxnb.cache.paged_launch import Launch
from mlxnb.cache.paged_metal import MetalKernels
from mlxnb.cache.paged_pool import PagedPool, in_place
from mlxnb.cache.paged_sequence import PagedSequence
from mlxnb.cache.paged_work import Work
from mlxnb.mlxlm import LayerShape
from paged.cases import EDGES, Case, long_way
from paged.shim import COMPILER, Shim

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

MANY = [
    Case((40, 300), heads=1, share=2, seed=5),
    Case((520,), heads=1, share=2, layers=1, layer=0),  # three parts
    Case((520, 30), heads=1, window=40, layers=1, layer=0),
    Case((400, 290), heads=1, share=2, width=3, sinks=True, layers=1, layer=0),
]
HALVES = [
    (Case((40, 90), width=2, share=2, sinks=True), dtype) for dtype in (mx.float16, mx.bfloat16)
]


def metal(case: Case, arguments: dict[str, Any], run: Any) -> mx.array:
    keys = arguments["keys"]
    work = Work(
        np.array(arguments["table"]),
        case.lengths,
        case.lengths,
        case.heads * case.share,
        case.heads,
        case.width,
        case.window,
        arguments["scale"],
        case.sinks,
    )
    values, layer, sinks = arguments["values"], arguments["layer"], arguments["sinks"]
    return paged_metal.attend(work, arguments["queries"], keys, values, layer, sinks, None, run)


class Notes(list[Launch]):
    """Launches instead of running."""

    def run(self, launch: Launch) -> list[mx.array]:
        self.append(launch)
        return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs.values()]


def launches(case: Case, dtype: mx.Dtype = mx.float32) -> list[Launch]:
    """What a case launches, and nothing is run."""
    notes = Notes()
    metal(case, case.arrays(dtype), notes.run)
    return notes


@pytest.fixture(scope="module")
def shim() -> Shim:
    shim, checked = Shim(), Notes()
    list(differences(checked.run))
    cases = [(case, mx.float32) for case in [*EDGES, *MANY]] + HALVES
    # all at once: each compilation reads the standard library's headers
    shim.prepare([*checked, *(launch for case in cases for launch in launches(*case))])
    return shim


def agrees(shim: Shim, case: Case, dtype: mx.Dtype = mx.float32, bound: float = 1e-5) -> None:
    arguments = case.arrays(dtype)
    found = np.array(metal(case, arguments, shim.run).astype(mx.float32))
    np.testing.assert_allclose(found, long_way(**arguments), atol=bound)


@pytest.mark.parametrize("case", [*EDGES, *MANY], ids=str)
def test_edge_shapes(shim: Shim, case: Case) -> None:
    agrees(shim, case)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(3, 60), min_size=1, max_size=3),
    width=st.integers(1, 3),
    heads=st.integers(1, 2),
    share=st.integers(1, 2),
    window=st.none() | st.integers(1, 40),
    sinks=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_shape(shim: Shim, lengths: list[int], **rest: Any) -> None:
    agrees(shim, Case(tuple(lengths), **rest))


@pytest.mark.parametrize(("case", "dtype"), HALVES, ids=str)
def test_half_precision(shim: Shim, case: Case, dtype: mx.Dtype) -> None:
    agrees(shim, case, dtype, bound=2e-2)


def test_the_order_of_the_lanes_does_not_matter(shim: Shim) -> None:
    case = MANY[3]
    arguments = case.arrays()
    forwards = np.array(metal(case, arguments, shim.run))
    shim.backwards = True
    try:
        backwards = np.array(metal(case, arguments, shim.run))
    finally:
        shim.backwards = False
    np.testing.assert_array_equal(forwards, backwards)


def test_more_slabs_than_a_kernel_takes(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged_work, "MAX_SLABS", 2)
    case = Case((700, 90), heads=1, sinks=True, layers=1, layer=0, seed=2)
    assert len(launches(case)) == 3  # two of attention, a merge
    agrees(shim, case)


def test_blocks_outside_of_the_window_are_not_launched_for() -> None:
    near = Case((520,), heads=1, layers=1, layer=0, window=20)
    assert len(launches(near)) == 1


def test_padding_is_not_read(shim: Shim) -> None:
    case = Case((20, 40), width=8)
    arguments = case.arrays()
    expected = np.array(metal(case, arguments, shim.run))
    block = np.array(arguments["table"])[0, 1]
    for slabs in (arguments["keys"], arguments["values"]):
        slabs[block // 16][:, :, block % 16] = mx.nan
    work = Work(
        np.array(arguments["table"]), (20, 40), (16, 40), 2, 2, 8, None, arguments["scale"], False
    )
    found = np.array(
        paged_metal.attend(
            work,
            arguments["queries"],
            arguments["keys"],
            arguments["values"],
            1,
            None,
            None,
            shim.run,
        )
    )
    np.testing.assert_allclose(found[0, :, :4], expected[0, :, :4], atol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("mask", [None, Window(9)], ids=str)
def test_caches_decode_with_it(shim: Shim, mask: Window | None) -> None:
    """Two rows, tokens one by one and three at once, beside MLX's own operations."""
    shape = LayerShape(2, 64, 64, mx.float32)
    pools = [PagedPool([shape, shape], k) for k in (MlxKernels(), MetalKernels(shim.run))]
    batches = []
    for pool in pools:
        rows = [paged_caches(PagedSequence(pool)) for _ in range(2)]
        for cache in rows[1]:
            new = mx.random.normal((1, 2, 21, 64), key=mx.random.key(1))
            cache.update_and_fetch(new, new)
        batches.append([PagedKVCache.merge(layers) for layers in zip(*rows, strict=True)])
    sinks = mx.array([0.1, 0.2, 0.3, 0.4])
    for step, width in enumerate((1, 1, 3, 1, 1, 1)):
        for place in range(2):
            random = mx.random.split(mx.random.key(step), 3)
            queries = mx.random.normal((2, 4, width, 64), key=random[0])
            keys, values = (mx.random.normal((2, 2, width, 64), key=k) for k in random[1:])
            outputs = []
            for batch in batches:
                batch[place].update_and_fetch(keys, values)
                word = mask or (None if width == 1 else "causal")
                outputs.append(batch[place].attend(queries, 0.125, word, sinks))
            assert mx.abs(outputs[0] - outputs[1]).max().item() < 1e-5


def test_the_check_for_a_users_machine(shim: Shim) -> None:
    for shape, difference in differences(shim.run):
        assert difference < (1e-5 if shape.dtype == mx.float32 else 0.02), shape


def test_the_check_sees_a_wrong_answer() -> None:
    wrong = Notes().run  # zeros
    assert all(difference > 0.02 for _, difference in differences(wrong))


# --- what only Metal would notice ---------------------------------------------------------------


@pytest.mark.parametrize("case", [Case((1,), heads=1), EDGES[0], *MANY], ids=str)
def test_arrays_are_in_the_address_space_that_the_kernel_names(shim: Shim, case: Case) -> None:
    for launch in launches(case):
        signature = shim.source(launch).split("[[kernel]]")[1].split("{")[0]
        assert not re.search(r"constant \w+\*", signature)


def test_a_kernel_stays_within_metals_buffers(shim: Shim) -> None:
    case = Case((257 * 12,), heads=1, layers=1, layer=0)
    found = launches(case)
    assert max(len(launch.inputs) + len(launch.outputs) for launch in found) <= 31


def test_threadgroup_memory_and_lanes_are_within_metals_limits() -> None:
    (launch,) = launches(Case((20,), dim=256))
    sizes = dict(launch.template)
    assert 4 * sizes["SIMDS"] * (sizes["V"] + 2) <= 32 * 1024
    assert launch.lanes <= 1024 and launch.lanes == 32 * sizes["SIMDS"]


def test_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLXNB_METAL", raising=False)
    assert paged_metal.metal_kernels() is None


def test_without_native_kernels_nothing_reads_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_NATIVE", "0")
    monkeypatch.delenv("MLXNB_METAL", raising=False)
    assert not in_place()
