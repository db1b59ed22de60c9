"""Attention against MLX's own."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb import native
from mlxnb.native.extension import kernel
from tests.native.parity import HALVES, assert_near, needs_kernels, normal

pytestmark = needs_kernels

# (heads, key heads): one to one, the demo model's, one for all, more than a panel's lanes
SHARES = [(4, 4), (9, 3), (8, 1), (32, 1)]


def qkv(
    heads: int = 9,
    kv_heads: int = 3,
    length: int = 1,
    tokens: int = 20,
    dim: int = 64,
    value_dim: int | None = None,
    batch: int = 2,
    dtype: Any = mx.float32,
) -> tuple[mx.array, mx.array, mx.array]:
    return (
        normal(batch, heads, length, dim, seed=1, dtype=dtype),
        normal(batch, kv_heads, tokens, dim, seed=2, dtype=dtype),
        normal(batch, kv_heads, tokens, value_dim or dim, seed=3, dtype=dtype),
    )


def attend(q: mx.array, k: mx.array, v: mx.array, mask: Any = None, sinks: Any = None) -> mx.array:
    """By the kernel alone."""
    causal = isinstance(mask, str)
    array = None if causal else mask
    return kernel("attention")(q, k, v, q.shape[-1] ** -0.5, causal, 0, array, sinks)


def twin(q: mx.array, k: mx.array, v: mx.array, mask: Any = None, sinks: Any = None) -> mx.array:
    return mx.fast.scaled_dot_product_attention(
        q, k, v, scale=q.shape[-1] ** -0.5, mask=mask, sinks=sinks
    )


@pytest.mark.parametrize("tokens", [1, 2, 7, 95, 96, 97, 200, 700])
@pytest.mark.parametrize(("heads", "kv_heads"), SHARES)
def test_decode(heads: int, kv_heads: int, tokens: int) -> None:
    arrays = qkv(heads, kv_heads, tokens=tokens)
    assert_near(attend(*arrays), twin(*arrays))


@pytest.mark.parametrize(("length", "tokens"), [(2, 2), (5, 9), (33, 33), (64, 300), (200, 700)])
@pytest.mark.parametrize(("heads", "kv_heads"), SHARES[:3])
@pytest.mark.parametrize("mask", [None, "causal"])
def test_prefill(heads: int, kv_heads: int, length: int, tokens: int, mask: str | None) -> None:
    arrays = qkv(heads, kv_heads, length, tokens, batch=1)
    assert_near(attend(*arrays, mask), twin(*arrays, mask))


@pytest.mark.parametrize(("dim", "value_dim"), [(8, 8), (13, 24), (80, 80), (192, 128), (256, 256)])
@pytest.mark.parametrize(("length", "tokens"), [(1, 130), (20, 50)])
def test_head_sizes(dim: int, value_dim: int, length: int, tokens: int) -> None:
    arrays = qkv(length=length, tokens=tokens, dim=dim, value_dim=value_dim)
    assert_near(attend(*arrays), twin(*arrays))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("length", "tokens"), [(1, 300), (30, 100)])
@pytest.mark.parametrize("mask", [None, "causal"])
def test_half_precision(dtype: Any, length: int, tokens: int, mask: str | None) -> None:
    arrays = qkv(length=length, tokens=tokens, dtype=dtype)
    expected = twin(*(a.astype(mx.float32) for a in arrays), mask).astype(dtype)
    assert_near(attend(*arrays, mask), expected)


def window_mask(length: int, tokens: int, window: int) -> mx.array:
    """As mlx-lm builds it for a sliding window of a cache."""
    late = mx.arange(tokens - length, tokens)[:, None]
    early = mx.arange(tokens)[None]
    return (late >= early) & (late < early + window)


@pytest.mark.parametrize("window", [1, 10, 100, 1000])
@pytest.mark.parametrize(("length", "tokens"), [(1, 300), (17, 17), (100, 400)])
def test_sliding_windows(window: int, length: int, tokens: int) -> None:
    arrays = qkv(length=length, tokens=tokens)
    mask = window_mask(length, tokens, window)
    expected = twin(*arrays, mask)
    assert_near(attend(*arrays, mask), expected)
    inside = kernel("attention")(*arrays, 64**-0.5, True, window)
    assert_near(inside, expected)


@pytest.mark.parametrize(("length", "tokens"), [(1, 150), (40, 40), (30, 130)])
def test_left_padding(length: int, tokens: int) -> None:
    arrays = qkv(length=length, tokens=tokens, batch=3)
    padding = mx.array([0, 5, min(30, tokens - 1)])
    mask = window_mask(length, tokens, tokens)[None, None]
    mask = mask & (padding[:, None, None, None] <= mx.arange(tokens))
    found, expected = attend(*arrays, mask), twin(*arrays, mask)
    sees = mask.any(-1, keepdims=True)  # rows of padding see nothing and count for nothing
    assert mx.isfinite(found).all()
    assert_near(mx.where(sees, found, 0), mx.where(sees, expected, 0))


@pytest.mark.parametrize("shape", [(20, 60), (2, 1, 20, 60), (1, 9, 20, 60), (2, 9, 1, 60), (60,)])
@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_masks_broadcast(shape: tuple[int, ...], kind: str) -> None:
    arrays = qkv(length=20, tokens=60)
    mask = normal(*shape, seed=4)
    if kind == "boolean":
        mask = (mask > 0) | (mx.arange(60) == 0)
    assert_near(attend(*arrays, mask), twin(*arrays, mask))


def test_additive_masks_of_minus_infinity() -> None:
    arrays = qkv(length=20, tokens=200)
    seen = window_mask(20, 200, 30)
    mask = mx.where(seen, 0.0, -mx.inf)
    assert_near(attend(*arrays, mask), twin(*arrays, seen))


def test_a_query_that_sees_no_key_is_finite() -> None:
    arrays = qkv(length=4, tokens=8)
    mask = mx.zeros((4, 8), dtype=mx.bool_)
    assert mx.isfinite(attend(*arrays, mask)).all()


@pytest.mark.parametrize("dtype", [mx.float32, *HALVES])
@pytest.mark.parametrize(("length", "tokens"), [(1, 10), (1, 600), (50, 50)])
def test_sinks(dtype: Any, length: int, tokens: int) -> None:
    arrays = qkv(length=length, tokens=tokens, dtype=dtype)
    sinks = (2 * normal(9, seed=5)).astype(dtype)
    wide = [a.astype(mx.float32) for a in (*arrays, sinks)]
    expected = twin(*wide[:3], sinks=wide[3]).astype(dtype)
    assert_near(attend(*arrays, sinks=sinks), expected)


def test_large_scores_do_not_overflow() -> None:
    q, k, v = qkv(length=3, tokens=100)
    assert_near(attend(100 * q, 100 * k, v), twin(100 * q, 100 * k, v))


def test_a_nan_is_not_hidden() -> None:
    q, k, v = qkv(tokens=10)
    q[0, 0, 0, 0] = mx.nan
    assert mx.isnan(attend(q, k, v)[0, 0]).all()


def test_slices_of_a_growing_cache() -> None:
    q, k, v = qkv(length=3, tokens=256)
    arrays = (q, k[..., :100, :], v[..., :100, :])
    assert_near(attend(*arrays, "causal"), twin(*arrays, "causal"))


def test_slices_are_not_copied() -> None:
    q, k, v = qkv(batch=1, tokens=4096)
    mx.eval(q, k, v)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(attend(q, k[..., :4000, :], v[..., :4000, :]))
    assert mx.get_peak_memory() - before < k.nbytes / 4


def test_queries_from_a_transposed_projection() -> None:
    q, k, v = qkv(length=7, tokens=7)
    q, k, v = (a.transpose(0, 2, 1, 3).reshape(2, 7, -1) for a in (q, k, v))
    q, k, v = (a.reshape(2, 7, n, 64).transpose(0, 2, 1, 3) for a, n in ((q, 9), (k, 3), (v, 3)))
    assert_near(attend(q, k, v, "causal"), twin(q, k, v, "causal"))


def test_keys_with_a_strided_last_axis() -> None:
    q, k, v = qkv(length=2, tokens=30)
    k = mx.contiguous(k.swapaxes(2, 3)).swapaxes(2, 3)
    assert_near(attend(q, k, v), twin(q, k, v))


def test_the_transposition_after_it_costs_nothing() -> None:
    out = attend(*qkv(length=20))
    mx.eval(out)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    joined = out.transpose(0, 2, 1, 3).reshape(2, 20, -1)
    mx.eval(joined)
    assert mx.get_peak_memory() <= before
    assert mx.array_equal(joined, mx.contiguous(out.transpose(0, 2, 1, 3)).reshape(2, 20, -1))


@given(
    length=st.integers(1, 40),
    before=st.integers(0, 250),
    share=st.sampled_from(SHARES),
    dim=st.sampled_from([4, 16, 24, 64, 72]),
    mask=st.sampled_from([None, "causal", "window", "random"]),
    sinks=st.booleans(),
)
def test_any_shape(
    length: int, before: int, share: tuple[int, int], dim: int, mask: Any, sinks: bool
) -> None:
    tokens = before + length
    arrays = qkv(*share, length, tokens, dim)
    if mask == "window":
        mask = window_mask(length, tokens, 20)
    elif mask == "random":
        mask = (normal(2, 1, length, tokens) > 0) | (mx.arange(tokens) == 0)
    logits = normal(share[0], seed=6) if sinks else None
    assert_near(attend(*arrays, mask, logits), twin(*arrays, mask, logits))


def test_what_the_kernel_lacks_stays_with_mlx() -> None:
    q, k, v = qkv(length=2, tokens=9)
    mixed = (q, k.astype(mx.float16), v.astype(mx.float16))
    with pytest.raises(ValueError, match="one floating type"):
        attend(*mixed)
    assert native.attention(*mixed, scale=0.1).shape == (2, 9, 2, 64)
