"""The native kernels over blocks, against the plain MLX form and the long way."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from paged.cases import EDGES, Case, any_case, long_way

from mlxnb import native
from mlxnb.cache.paged_attention import paged_attention
from mlxnb.native.extension import kernel

pytestmark = pytest.mark.skipif(not native.available(), reason=str(native.reason()))


def pages_of(
    case: Case, arguments: dict[str, Any], width: int | None = None, counts: list[int] | None = None
) -> Any:
    table = np.array(arguments["table"])
    starts = [length - case.width for length in case.lengths]
    counts = counts or [case.width] * len(starts)
    keys, values = arguments["keys"], arguments["values"]
    make: Any = kernel("Pages")
    return make(keys, values, table.ravel().tolist(), width or table.shape[1], starts, counts)


def attend(case: Case, arguments: dict[str, Any], **changes: Any) -> mx.array:
    return kernel("paged_attention")(
        pages_of(case, arguments, **changes),
        arguments["layer"],
        arguments["queries"],
        arguments["scale"],
        arguments["window"] or 0,
        arguments["sinks"],
    )


def agrees(case: Case, dtype: mx.Dtype = mx.float32, bound: float = 1e-5) -> None:
    arguments = case.arrays(dtype)
    found = np.array(attend(case, arguments).astype(mx.float32))
    np.testing.assert_allclose(found, long_way(**arguments), atol=bound)


LONG = [
    Case((1500,), heads=3, share=3),  # parts of the keys are different threads'
    Case((1500, 40, 700), heads=1, share=2, sinks=True),
    Case((1500, 90), heads=1, window=400),
    Case((700, 130), heads=1, width=130, share=2),  # prefill: panels of queries
    Case((260,), heads=2, width=260, window=50, share=3),
]


@pytest.mark.parametrize("case", [*EDGES, *LONG], ids=str)
def test_edge_shapes(case: Case) -> None:
    agrees(case)


@settings(max_examples=60, deadline=None)
@given(any_case(longest=300, widest=40))
def test_any_shape(case: Case) -> None:
    agrees(case)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
@pytest.mark.parametrize("case", [Case((40, 90), width=3, share=2, sinks=True), LONG[0]], ids=str)
def test_half_precision(dtype: mx.Dtype, case: Case) -> None:
    agrees(case, dtype, bound=2e-2)


def test_the_twin_gives_the_same() -> None:
    case = Case((300, 17), heads=2, share=3, width=2, window=100)
    arguments = case.arrays()
    difference = attend(case, arguments) - paged_attention(**arguments)
    assert mx.abs(difference).max().item() < 1e-5


def test_padding_is_not_read_and_does_not_disturb() -> None:
    whole = Case((20, 40), width=8)
    arguments = whole.arrays()
    expected = np.array(attend(whole, arguments))
    blocks = np.array(arguments["table"])[0]
    keys, values = arguments["keys"], arguments["values"]
    for slabs in (keys, values):  # row 0 really has 16 tokens: its second block is not its own
        slabs[blocks[1] // 16][:, :, blocks[1] % 16] = mx.nan
    found = np.array(attend(whole, arguments, counts=[4, 8]))
    np.testing.assert_allclose(found[0, :, :4], expected[0, :, :4], atol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    assert np.isfinite(found).all()


def test_queries_may_be_a_transposed_view() -> None:
    case = Case((33, 20), width=5, share=2)
    arguments = case.arrays()
    expected = np.array(attend(case, arguments))
    queries = arguments["queries"]
    arguments["queries"] = mx.contiguous(queries.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(np.array(attend(case, arguments)), expected)


# --- writes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("lengths", [(1,), (16, 17), (5, 40, 100)])
def test_writes_land_in_the_slabs_themselves(dtype: mx.Dtype, lengths: tuple[int, ...]) -> None:
    case = Case(lengths, width=1, value_dim=80)
    arguments = case.arrays(dtype)
    shape = (len(lengths), case.heads, 1)
    keys, values = mx.ones((*shape, 64), dtype), 2 * mx.ones((*shape, 80), dtype)
    mx.eval(arguments["keys"], arguments["values"])
    before = mx.get_active_memory()
    done = kernel("paged_write")(pages_of(case, arguments), 1, keys, values)
    mx.eval(done)
    del done
    table = np.array(arguments["table"])
    for row, length in enumerate(lengths):
        place, at = table[row, (length - 1) // 16], (length - 1) % 16
        for slabs, value in ((arguments["keys"], 1.0), (arguments["values"], 2.0)):
            written = slabs[place // 16][1, :, place % 16, at]
            assert mx.all(written == value).item()
    del keys, values, written
    assert mx.get_active_memory() <= before + 64


def test_a_prompt_is_written_across_blocks() -> None:
    case = Case((50, 40), width=37)
    arguments = case.arrays()
    keys = mx.random.normal((2, 2, 37, 64))
    values = mx.contiguous(mx.random.normal((2, 37, 2, 64))).transpose(0, 2, 1, 3)
    done = kernel("paged_write")(pages_of(case, arguments), 1, keys, values)
    mx.eval(done)
    found = long_way(**arguments)
    wanted = np.array(
        kernel("paged_attention")(
            pages_of(case, arguments), 1, arguments["queries"], arguments["scale"]
        )
    )
    np.testing.assert_allclose(wanted, found, atol=1e-5)
    table = np.array(arguments["table"])
    for row in range(2):
        for t in range(37):
            position = case.lengths[row] - 37 + t
            place = int(table[row, position // 16])
            slab = arguments["values"][place // 16]
            assert mx.array_equal(slab[1, :, place % 16, position % 16], values[row, :, t])


def test_attention_sees_the_write_that_it_comes_after() -> None:
    case = Case((40,), width=1)
    arguments = case.arrays()
    pages = pages_of(case, arguments)
    after = None
    for value in (1.0, 2.0):  # built before anything has run
        new = mx.full((1, 2, 1, 64), value)
        after = kernel("paged_write")(pages, 1, new, new, after)
    out = kernel("paged_attention")(
        pages, 1, arguments["queries"], arguments["scale"], 1, None, after
    )
    np.testing.assert_allclose(np.array(out), 2.0)


# --- refusals -----------------------------------------------------------------------------------


def test_a_table_that_points_outside_is_refused() -> None:
    case = Case((20,))
    arguments = case.arrays()
    arguments["table"] = mx.array([[0, 16 * len(arguments["keys"])]], dtype=mx.int32)
    with pytest.raises(ValueError, match="outside"):
        pages_of(case, arguments)


def test_more_tokens_than_blocks_are_refused() -> None:
    case = Case((20,))
    arguments = case.arrays()
    arguments["table"] = arguments["table"][:, :1]
    with pytest.raises(ValueError, match="no blocks"):
        pages_of(case, arguments)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"queries": mx.zeros((2, 2, 1, 64))}, "rows, heads, tokens, dim"),
        ({"queries": mx.zeros((1, 3, 1, 64))}, "multiple"),
        ({"queries": mx.zeros((1, 2, 1, 32))}, "rows, heads, tokens, dim"),
        ({"queries": mx.zeros((1, 2, 1, 64), mx.float16)}, "type"),
        ({"layer": 2}, "layer"),
        ({"sinks": mx.zeros((3,))}, "sink"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], match: str) -> None:
    case = Case((20,))
    arguments = {**case.arrays(), **changes}
    with pytest.raises(ValueError, match=match):
        attend(case, arguments)
