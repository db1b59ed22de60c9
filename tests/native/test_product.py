"""Products with quantised and dense weights, and table lookups, against MLX's own."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb import native
from mlxnb.native.extension import kernel
from tests.native.parity import HALVES, assert_near, assert_near_sums, needs_kernels, normal

pytestmark = needs_kernels

LAYOUTS = [(bits, group) for bits in (4, 8) for group in (32, 64, 128)]
COUNTS = [*range(1, 34), 128, 1000]


def packed(rows: int, depth: int, bits: int, group: int, dtype: Any = mx.float32) -> dict[str, Any]:
    weight, scales, biases = mx.quantize(normal(rows, depth, seed=1).astype(dtype), group, bits)
    return {"w": weight, "scales": scales, "biases": biases, "group_size": group, "bits": bits}


def product(x: mx.array, w: dict[str, Any], bias: mx.array | None = None) -> mx.array:
    """By the kernel alone: what it refuses is an error here."""
    return kernel("quantized_matmul")(
        x, *(w[k] for k in ("w", "scales", "biases")), bias, w["group_size"], w["bits"]
    )


def wide_twin(x: mx.array, w: dict[str, Any]) -> mx.array:
    """In float32 throughout: MLX itself adds up halves as halves, which loses much."""
    wide = {k: v.astype(mx.float32) if k in ("scales", "biases") else v for k, v in w.items()}
    return twin(x.astype(mx.float32), wide)


def twin(x: mx.array, w: dict[str, Any]) -> mx.array:
    packed = [w[k] for k in ("w", "scales", "biases")]
    return mx.quantized_matmul(x, *packed, True, w["group_size"], w["bits"])


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("bits", "group"), [(4, 32), (8, 64)])
def test_any_number_of_rows(count: int, bits: int, group: int) -> None:
    w = packed(75, 192, bits, group)
    x = normal(count, 192)
    assert_near(product(x, w), twin(x, w))


@pytest.mark.parametrize(("bits", "group"), LAYOUTS)
@pytest.mark.parametrize("groups", [1, 3, 5, 9, 18])
@pytest.mark.parametrize("rows", [1, 7, 100])
@pytest.mark.parametrize("count", [1, 3, 6, 17])
def test_any_layout(bits: int, group: int, groups: int, rows: int, count: int) -> None:
    w = packed(rows, groups * group, bits, group)
    x = normal(count, groups * group)
    assert_near(product(x, w), twin(x, w))


@pytest.mark.parametrize(("rows", "depth"), [(576, 576), (192, 576), (1536, 576), (576, 1536)])
@pytest.mark.parametrize("count", [1, 4, 128])
def test_shapes_of_the_demo_model(rows: int, depth: int, count: int) -> None:
    w = packed(rows, depth, 4, 32)
    x = normal(count, depth)
    assert_near(product(x, w), twin(x, w))


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize(("bits", "group"), [(4, 32), (8, 128)])
def test_depths_that_are_unpacked_in_parts(count: int, bits: int, group: int) -> None:
    w = packed(50, 4480, bits, group)
    x = normal(count, 4480)
    assert_near(product(x, w), twin(x, w))


@pytest.mark.parametrize("count", [1, 20])
def test_many_rows_of_weights(count: int) -> None:
    w = packed(5003, 64, 8, 32)
    x = normal(count, 64)
    assert_near(product(x, w), twin(x, w))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("bits", "group"), LAYOUTS)
@pytest.mark.parametrize("count", [1, 3, 18])
def test_half_precision(dtype: mx.Dtype, bits: int, group: int, count: int) -> None:
    w = packed(33, 3 * group, bits, group, dtype)
    x = normal(count, 3 * group, dtype=dtype)
    assert_near(product(x, w), wide_twin(x, w).astype(dtype))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("count", [1, 18])
def test_float_activations_over_half_scales(dtype: mx.Dtype, count: int) -> None:
    w = packed(33, 192, 4, 32, dtype)
    x = normal(count, 192)
    assert_near(product(x, w), twin(x, w))


@pytest.mark.parametrize("count", [1, 5, 40])
def test_a_bias_is_added(count: int) -> None:
    w, bias = packed(70, 128, 4, 64), normal(70, seed=2)
    x = normal(count, 128)
    assert_near(product(x, w, bias), twin(x, w) + bias)


@pytest.mark.parametrize("shape", [(64,), (1, 1, 64), (2, 3, 64), (3, 1, 5, 64), (0, 64)])
def test_leading_axes(shape: tuple[int, ...]) -> None:
    w = packed(40, 64, 4, 32)
    x = normal(*shape)
    expected = twin(x, w) if x.size else mx.zeros((0, 40))
    assert_near(product(x, w), expected)


VIEWS = {
    "last position": lambda x: x[:, -1:, :],
    "every other row": lambda x: x[:, ::2],
    "part of a row": lambda x: mx.concatenate([x, x], -1)[..., 64:128],
    "transposed rows": lambda x: x.transpose(1, 0, 2),
    "transposed": lambda x: x.reshape(3, -1, 64).transpose(0, 2, 1)[..., :64],
    "broadcast": lambda x: mx.broadcast_to(x[:1, :1], (3, 40, 64)),
    "reversed": lambda x: x[..., ::-1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("length", [3, 64])
def test_views(view: str, length: int) -> None:
    w = packed(40, 64, 4, 32)
    x = VIEWS[view](normal(3, max(length, 64) if view == "transposed" else length, 64))
    assert_near(product(x, w), twin(x, w))


def test_weights_that_are_views() -> None:
    w = packed(80, 64, 4, 32)
    half = {k: v[::2] if isinstance(v, mx.array) else v for k, v in w.items()}
    x = normal(2, 64)
    assert_near(product(x, half), twin(x, half))


@pytest.mark.parametrize("dtype", [mx.float32, *HALVES])
@pytest.mark.parametrize(("rows", "depth"), [(1, 1), (7, 13), (100, 300), (24, 64), (9, 4100)])
@pytest.mark.parametrize("count", [1, 4, 9, 40])
def test_dense_weights(dtype: mx.Dtype, rows: int, depth: int, count: int) -> None:
    w, bias = (normal(*s, seed=i, dtype=dtype) for i, s in enumerate(((rows, depth), (rows,))))
    x = normal(count, depth, seed=2, dtype=dtype)
    wide = [a.astype(mx.float32) for a in (x, w, bias)]
    assert_near(kernel("linear")(x, w), (wide[0] @ wide[1].T).astype(dtype))
    assert_near(kernel("linear")(x, w, bias), (wide[0] @ wide[1].T + wide[2]).astype(dtype))


@pytest.mark.parametrize(("bits", "group"), LAYOUTS)
@pytest.mark.parametrize("dtype", [mx.float32, *HALVES])
def test_lookup(bits: int, group: int, dtype: mx.Dtype) -> None:
    w = packed(50, 2 * group, bits, group, dtype)
    ids = mx.array([[0, 49, 7], [-1, 3, 3]])
    parts = [w[k] for k in ("w", "scales", "biases")]
    found = kernel("quantized_embedding")(ids, *parts, group, bits)
    assert_near(found, mx.dequantize(*(p[ids] for p in parts), group, bits))


@pytest.mark.parametrize("dtype", [mx.uint32, mx.int64, mx.uint8])
def test_ids_of_any_integer_type(dtype: mx.Dtype) -> None:
    w = packed(50, 64, 8, 32)
    ids = mx.array([1, 2, 40]).astype(dtype)
    parts = [w[k] for k in ("w", "scales", "biases")]
    found = kernel("quantized_embedding")(ids, *parts, 32, 8)
    assert_near(found, mx.dequantize(*(p[ids] for p in parts), 32, 8))


@given(
    count=st.integers(1, 70),
    rows=st.integers(1, 150),
    groups=st.integers(1, 6),
    layout=st.sampled_from(LAYOUTS),
    seed=st.integers(0, 1000),
)
def test_products_of_any_shape(
    count: int, rows: int, groups: int, layout: tuple[int, int], seed: int
) -> None:
    bits, group = layout
    w = packed(rows, groups * group, bits, group)
    x = normal(count, groups * group, seed=seed)
    weights = mx.dequantize(w["w"], w["scales"], w["biases"], group_size=group, bits=bits)
    assert_near_sums(product(x, w), twin(x, w), mx.abs(x) @ mx.abs(weights).T)


@given(count=st.integers(1, 50), rows=st.integers(1, 120), depth=st.integers(1, 200))
def test_dense_products_of_any_shape(count: int, rows: int, depth: int) -> None:
    x, w = normal(count, depth), normal(rows, depth, seed=1)
    assert_near_sums(kernel("linear")(x, w), x @ w.T, mx.abs(x) @ mx.abs(w).T)


@pytest.mark.parametrize(("bits", "group"), [(2, 32), (3, 64), (6, 64)])
def test_other_layouts_stay_with_mlx(bits: int, group: int) -> None:
    w = packed(40, 128, bits, group)
    x = normal(3, 128)
    with pytest.raises(ValueError, match="4 and 8 bits"):
        product(x, w)
    found = native.quantized_matmul(
        x, w["w"], w["scales"], w["biases"], group_size=group, bits=bits
    )
    assert mx.array_equal(found, twin(x, w))


def test_shapes_that_do_not_fit_are_refused_in_mlx_words() -> None:
    w = packed(40, 128, 4, 32)
    with pytest.raises(ValueError, match="quantized_matmul"):
        native.quantized_matmul(
            normal(3, 64), w["w"], w["scales"], w["biases"], group_size=32, bits=4
        )


def test_a_product_is_lazy_and_counted() -> None:
    w = packed(512, 512, 4, 32)
    x = normal(256, 512)
    mx.eval(x, w["w"], w["scales"], w["biases"])
    before = mx.get_active_memory()
    out = product(x, w)
    assert mx.get_active_memory() == before
    mx.eval(out)
    mx.synchronize()
    assert mx.get_active_memory() - before >= out.nbytes
    del out
    assert mx.get_active_memory() == before
