"""What the tests of the kernels share: when to skip, and how near is near enough."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from mlxnb import native

needs_kernels = pytest.mark.skipif(not native.available(), reason=native.reason() or "")

# Relative to the largest element. The kernels add in float32; halves differ by their last bit.
NEAR = {mx.float32: 1e-4, mx.float16: 2e-3, mx.bfloat16: 1.6e-2}
HALVES = (mx.float16, mx.bfloat16)


def distance(found: mx.array, expected: mx.array) -> float:
    """The largest difference over the largest expected element."""
    assert found.shape == expected.shape
    a, b = (np.array(x.astype(mx.float32), dtype=np.float64) for x in (found, expected))
    assert np.isfinite(a).all()
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) if a.size else 0.0


def assert_near(found: mx.array, expected: mx.array) -> None:
    """The type is the same, and the values within what the type allows."""
    assert found.dtype == expected.dtype
    assert distance(found, expected) < NEAR[found.dtype]


def assert_near_sums(found: mx.array, expected: mx.array, terms: mx.array) -> None:
    """The same for float32 sums whose terms may cancel: beside what the terms add up to.

    ``terms`` are the sums of their absolute values.
    """
    assert found.dtype == expected.dtype == mx.float32
    a, b, size = (np.array(x, dtype=np.float64) for x in (found, expected, terms))
    assert np.isfinite(a).all()
    assert (np.abs(a - b) <= 1e-5 * size + 1e-30).all()


def normal(*shape: int, seed: int = 0, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)
