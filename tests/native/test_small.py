"""Norms, rotary positions and gates against MLX's own."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.native.extension import kernel
from mlxnb.native.layers import _frequencies
from tests.native.parity import HALVES, assert_near, needs_kernels, normal

pytestmark = needs_kernels

DTYPES = [mx.float32, *HALVES]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (1, 576), (3, 7, 77), (300, 64)])
def test_norms(dtype: Any, shape: tuple[int, ...]) -> None:
    x, weight = normal(*shape, dtype=dtype), normal(shape[-1], seed=1, dtype=dtype)
    assert_near(kernel("rms_norm")(x, weight, 1e-5), mx.fast.rms_norm(x, weight, 1e-5))
    assert_near(kernel("rms_norm")(x, None, 1e-5), mx.fast.rms_norm(x, None, 1e-5))


def test_norms_of_views() -> None:
    x, weight = normal(4, 6, 32), normal(16, seed=1)
    for view in (x[:, 1:3, 8:24], x[::2, :, ::2], x.transpose(1, 0, 2)[..., :16]):
        assert_near(kernel("rms_norm")(view, weight, 1e-5), mx.fast.rms_norm(view, weight, 1e-5))


def test_a_norm_leaves_an_input_that_is_still_needed() -> None:
    x = normal(3, 64)
    first = mx.array(x)
    mx.eval(x, first, kernel("rms_norm")(x, None, 1e-5))
    assert mx.array_equal(x, first)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (5,), (3, 1000), (2, 1, 4099)])
def test_log_probabilities(dtype: Any, shape: tuple[int, ...]) -> None:
    x = 5 * normal(*shape, dtype=dtype)
    wide = x.astype(mx.float32)
    expected = (wide - mx.logsumexp(wide, axis=-1, keepdims=True)).astype(dtype)
    assert_near(kernel("log_softmax")(x), expected)


def test_log_probabilities_of_views_and_masked_logits() -> None:
    x = normal(2, 7, 100)[:, -1, ::2]
    x = mx.where(mx.arange(50) % 3 == 0, -mx.inf, x)
    found = kernel("log_softmax")(x)
    assert mx.allclose(found, x - mx.logsumexp(x, axis=-1, keepdims=True), atol=1e-5)
    assert mx.allclose(mx.exp(found).sum(-1), mx.ones(2))


def rotated(
    x: mx.array, dims: int, base: float, offset: Any, traditional: bool = False
) -> mx.array:
    return kernel("rope")(x, _frequencies(dims, base), offset, traditional, 1.0)


def twin(x: mx.array, dims: int, base: float, offset: Any, traditional: bool = False) -> mx.array:
    return mx.fast.rope(x, dims, traditional=traditional, base=base, scale=1.0, offset=offset)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 5, 4000])
@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize(("dim", "dims"), [(64, 64), (64, 32), (80, 20), (6, 6)])
def test_rotary_positions(dtype: Any, offset: int, traditional: bool, dim: int, dims: int) -> None:
    x = normal(2, 5, 9, dim, dtype=dtype)
    assert_near(
        rotated(x, dims, 10000.0, offset, traditional), twin(x, dims, 10000.0, offset, traditional)
    )


def test_an_offset_for_each_row() -> None:
    x, offsets = normal(3, 2, 4, 64), mx.array([0, 17, 300])
    assert_near(rotated(x, 64, 1e6, offsets), twin(x, 64, 1e6, offsets))


def test_rotation_of_a_transposed_projection() -> None:
    x = normal(2, 7, 9, 64).transpose(0, 2, 1, 3)
    assert_near(rotated(x, 64, 10000.0, 3), twin(x, 64, 10000.0, 3))


def test_scaled_positions() -> None:
    x = normal(1, 2, 30, 64)
    found = kernel("rope")(x, _frequencies(64, 10000.0), 5, False, 0.25)
    expected = mx.fast.rope(x, 64, traditional=False, base=10000.0, scale=0.25, offset=5)
    assert_near(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 1536), (100, 333)])
def test_gates(dtype: Any, shape: tuple[int, ...]) -> None:
    gate, up = 4 * normal(*shape, dtype=dtype), normal(*shape, seed=1, dtype=dtype)
    wide = [a.astype(mx.float32) for a in (gate, up)]
    assert_near(kernel("gated")(gate, up), (nn.silu(wide[0]) * wide[1]).astype(dtype))


def test_gates_far_from_zero() -> None:
    gate = mx.array([-1e4, -200.0, -90.0, -87.0, 0.0, 87.0, 90.0, 1e4])
    assert_near(kernel("gated")(gate, mx.ones(8)), nn.silu(gate))


@given(rows=st.integers(1, 40), dim=st.integers(1, 200))
def test_norms_of_any_shape(rows: int, dim: int) -> None:
    x, weight = normal(rows, dim), normal(dim, seed=1)
    assert_near(kernel("rms_norm")(x, weight, 1e-6), mx.fast.rms_norm(x, weight, 1e-6))
