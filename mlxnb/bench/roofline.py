"""What the machine can do at the most: bytes read from memory, and float32 operations, a second.

A bound that is computed from them is what S. Williams, A. Waterman and D. Patterson named the
roofline (Communications of the ACM 52(4), 2009).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import numpy as np

from mlxnb import native
from mlxnb.bench.figures import Figure, Sheet, find
from mlxnb.container import cores

READS = "streaming reads, all cores"
PRODUCTS = ("float32 product, NumPy's BLAS", "float32 product, our kernels")
GIGA = 1e9
STREAM = 2**28
"""Bytes that each core reads at a time: more than caches hold."""
SIDE = 2048
"""Rows and columns of the products."""


def measure(rounds: int, stream: int = STREAM, side: int = SIDE) -> list[Figure]:
    """Reads and products, round by round."""
    sheet = Sheet("roofline")
    reads, products = _reads(stream), _products(side)
    for _ in range(rounds):
        sheet.add(READS, "GB/s", reads() / GIGA)
        for name, product in products.items():
            sheet.add(name, "GFLOP/s", 2 * side**3 / _seconds(product) / GIGA)
    return sheet.figures()


def roof(figures: Iterable[Figure]) -> tuple[float, float] | None:
    """The best that was measured: bytes a second and operations a second."""
    figures = list(figures)
    reads = find(figures, READS)
    best = [f.high for name in PRODUCTS if (f := find(figures, name)) is not None and f.high]
    if reads is None or not reads.high or not best:
        return None
    return GIGA * reads.high, GIGA * max(best)


def _reads(stream: int) -> Callable[[], float]:
    """All cores read memory of their own, as the dot product of an array with itself."""
    count = cores()
    arrays = [np.ones(stream // 4, np.float32) for _ in range(count)]

    def read() -> float:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda a: np.dot(a[:1024], a[:1024]), arrays))  # the threads are there
            begin = time.perf_counter()
            list(pool.map(lambda array: np.dot(array, array), arrays))
            return count * stream / (time.perf_counter() - begin)

    return read


def _products(side: int) -> dict[str, Callable[[], object]]:
    """Products of square matrices; ours where there are kernels."""
    left = np.random.default_rng(0).standard_normal((side, side), np.float32)
    found: dict[str, Callable[[], object]] = {PRODUCTS[0]: lambda: left @ left.T}
    if native.available():
        x = mx.array(left)
        found[PRODUCTS[1]] = lambda: mx.eval(native.linear(x, x))
    return found


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
