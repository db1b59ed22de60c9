"""The kernels of this device against plain MLX: on the CPU ours, on Metal paged attention's.

``python -m mlxnb.doctor.kernels`` prints findings, a line each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import mlx.core as mx
import numpy as np

from mlxnb import native
from mlxnb.cache.paged_check import apart, differences
from mlxnb.cache.paged_kernels import Kernels
from mlxnb.cache.paged_metal import MetalKernels
from mlxnb.cache.paged_native import NativeKernels
from mlxnb.doctor.finding import Finding, within
from mlxnb.native.extension import kernel

BOUND = 1e-4
"""Of a float32 answer, relative to its largest element: the order of sums is another."""

Pair = tuple[mx.array, mx.array]
"""A kernel's answer, and MLX's."""


def checks() -> Iterator[Finding]:
    """What there is to check on this machine."""
    if native.available():
        yield from cpu_checks()
        yield from paged_checks(NativeKernels)
    if mx.metal.is_available():
        yield from metal_checks()
        yield from paged_checks(MetalKernels)


# --- on the CPU ---------------------------------------------------------------------------------


def cpu_checks() -> Iterator[Finding]:
    """Each kernel on a few shapes, by itself: what it refuses is an error here."""
    for name, pairs in CPU.items():
        try:
            yield within(name, max(_distance(*pair) for pair in pairs()), BOUND)
        except Exception as error:
            yield Finding(name, False, f"{type(error).__name__}: {error}")


def _products(bits: int, group: int) -> list[Pair]:
    w, scales, biases = mx.quantize(_normal(75, 3 * group, seed=1), group, bits)
    return [
        (
            kernel("quantized_matmul")(x, w, scales, biases, None, group, bits),
            mx.quantized_matmul(x, w, scales, biases, True, group, bits),
        )
        for x in (_normal(count, 3 * group) for count in (1, 6, 33))
    ]


def _lookups(bits: int) -> list[Pair]:
    w, scales, biases = mx.quantize(_normal(50, 128), 64, bits)
    ids = mx.array([[3, 49, 0, 3]])
    expected = mx.dequantize(w[ids], scales[ids], biases[ids], 64, bits)
    return [(kernel("quantized_embedding")(ids, w, scales, biases, 64, bits), expected)]


def _dense() -> list[Pair]:
    weight = _normal(75, 96, seed=1)
    return [(kernel("linear")(x, weight, None), x @ weight.T) for x in map(_row, (1, 6, 33))]


def _row(count: int) -> mx.array:
    return _normal(count, 96)


def _attention(length: int) -> list[Pair]:
    queries = _normal(2, 6, length, 64)
    keys, values = _normal(2, 2, 300, 64, seed=1), _normal(2, 2, 300, 64, seed=2)
    found = kernel("attention")(queries, keys, values, 0.125, True, 0, None, None)
    sdpa = mx.fast.scaled_dot_product_attention
    return [(found, sdpa(queries, keys, values, scale=0.125, mask="causal"))]


def _norms() -> list[Pair]:
    x, weight = _normal(7, 576), _normal(576, seed=1)
    return [(kernel("rms_norm")(x, weight, 1e-5), mx.fast.rms_norm(x, weight, 1e-5))]


def _positions() -> list[Pair]:
    x, frequencies = _normal(2, 3, 5, 64), 10000.0 ** (-mx.arange(0, 64, 2) / 64)
    found = kernel("rope")(x, frequencies, 700, False, 1.0)
    rope = mx.fast.rope(x, 64, traditional=False, base=10000.0, scale=1.0, offset=700)
    return [(found, rope)]


def _probabilities() -> list[Pair]:
    x = 5 * _normal(2, 4099)
    return [(kernel("log_softmax")(x), x - mx.logsumexp(x, axis=-1, keepdims=True))]


def _gates() -> list[Pair]:
    gate, up = _normal(3, 1536), _normal(3, 1536, seed=1)
    return [(kernel("gated")(gate, up), gate * mx.sigmoid(gate) * up)]


CPU: dict[str, Callable[[], list[Pair]]] = {
    **{
        f"product, {bits} bit, groups of {group}": partial(_products, bits, group)
        for bits in (4, 8)
        for group in (32, 64, 128)
    },
    **{f"embedding, {bits} bit": partial(_lookups, bits) for bits in (4, 8)},
    "product, float32": _dense,
    "attention, one token": partial(_attention, 1),
    "attention, prompt": partial(_attention, 40),
    "RMS norm": _norms,
    "rotary positions": _positions,
    "log-probabilities": _probabilities,
    "SwiGLU": _gates,
}


def paged_checks(kernels: Callable[[], Kernels]) -> Iterator[Finding]:
    """Rows that decode over blocks, whose newest keys are written there."""
    for window in (None, 9):
        name = f"rows over blocks, {kernels.__name__}, window {window}"
        yield within(name, apart(kernels(), window), BOUND)


# --- on Metal -----------------------------------------------------------------------------------


def metal_checks() -> Iterator[Finding]:
    """Paged attention by the Metal kernels, which are compiled for it."""
    for shape, difference in differences():
        bound = 1e-5 if shape.dtype == mx.float32 else 0.02
        yield within(f"paged attention on Metal, {shape}", difference, bound)


# --- arrays -------------------------------------------------------------------------------------


def _normal(*shape: int, seed: int = 0) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed))


def _distance(found: mx.array, expected: mx.array) -> float:
    """The largest difference over the largest expected element; NaN where one is."""
    a, b = np.array(found), np.array(expected)
    return float(np.abs(a - b).max() / np.abs(b).max())


if __name__ == "__main__":
    for finding in checks():
        print(finding.line(), flush=True)
