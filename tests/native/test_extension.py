"""The door: when there are kernels, when not, and why."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import mlx.core as mx
import pytest

from mlxnb import native
from mlxnb.native import extension
from tests.native.parity import assert_near, needs_kernels, normal


@pytest.fixture
def forgotten() -> Iterator[None]:
    """The extension is looked for anew, before and after."""
    extension._extension.cache_clear()
    yield
    extension._extension.cache_clear()


def test_one_variable_switches_all_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_NATIVE", "0")
    assert not native.available()
    assert "MLXNB_NATIVE" in (native.reason() or "")


@pytest.mark.usefixtures("forgotten")
def test_without_the_extension_mlx_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlxnb._native", None)
    assert "compiler" in (native.reason() or "")
    w, scales, biases = mx.quantize(normal(8, 64), 32, 4)
    x = normal(3, 64, seed=1)
    found = native.quantized_matmul(x, w, scales, biases, group_size=32, bits=4)
    assert mx.array_equal(found, mx.quantized_matmul(x, w, scales, biases, True, 32, 4))
    assert mx.array_equal(native.linear(x, x), x @ x.T)
    frequencies = mx.array([1.0, 0.1])
    q = normal(1, 2, 3, 4)
    assert native.rope(q, frequencies, 2).shape == q.shape
    assert native.attention(q, q, q, scale=1.0).shape == q.shape


@pytest.mark.usefixtures("forgotten")
def test_an_extension_for_another_mlx_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("mlxnb._native")
    other.mlx_version = "0.1.2"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlxnb._native", other)
    reason = native.reason() or ""
    assert "0.1.2" in reason
    assert mx.__version__ in reason


@needs_kernels
def test_it_was_built_for_this_mlx() -> None:
    module, why = extension._extension()
    assert why is None
    assert module.mlx_version == mx.__version__


@needs_kernels
def test_streams_of_several_threads_at_once() -> None:
    w, scales, biases = mx.quantize(normal(700, 256), 32, 4)
    x = normal(40, 256, seed=1)
    expected = mx.quantized_matmul(x, w, scales, biases, True, 32, 4)
    mx.eval(w, scales, biases, x, expected)

    def worst(_: int) -> list[mx.array]:
        found = []
        for _ in range(20):
            found.append(native.quantized_matmul(x, w, scales, biases, group_size=32, bits=4))
            mx.eval(found[-1])
        mx.synchronize()
        return found

    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(worst, range(4)):
            for out in found:
                assert_near(out, expected)


PROGRAM = """
import mlx.core as mx
from mlxnb import native
from mlxnb.native import extension
module, why = extension._extension()
assert why is None, why
x, table = mx.random.normal((33, 128)), mx.random.normal((100, 128))
w, s, b = mx.quantize(table, 64, 4)
near = lambda a, b: float(mx.abs(a - b).max() / mx.abs(b).max()) < 1e-4
for n in (1, 3, 33):
    found = native.quantized_matmul(x[:n], w, s, b, group_size=64, bits=4)
    assert near(found, mx.quantized_matmul(x[:n], w, s, b, True, 64, 4))
for t in (mx.float16, mx.bfloat16):
    assert mx.array_equal(native.linear(x.astype(t), mx.eye(128).astype(t)), x.astype(t))
q = mx.random.normal((1, 6, 10, 32))
k = mx.random.normal((1, 2, 300, 32))
found = native.attention(q, k, k, scale=0.2, mask="causal")
expected = mx.fast.scaled_dot_product_attention(q, k, k, scale=0.2, mask="causal")
assert near(found, expected)
print(module.isa(), module.threads())
"""


@needs_kernels
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"MLXNB_ISA": "portable", "MLXNB_THREADS": "1"}, ["portable", "1"]),
        ({"MLXNB_ISA": "portable", "MLXNB_THREADS": "3"}, ["portable", "3"]),
        ({"MLXNB_THREADS": "5"}, [None, "5"]),
    ],
)
def test_plain_kernels_and_numbers_of_threads(
    variables: dict[str, str], expected: list[str | None]
) -> None:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert all(e is None or e == w for w, e in zip(words, expected, strict=True))


@needs_kernels
@pytest.mark.parametrize(("variables", "expected"), [({}, "3"), ({"MLXNB_THREADS": "5"}, "5")])
def test_as_many_threads_as_the_process_may_use(variables: dict[str, str], expected: str) -> None:
    program = (
        "import mlxnb.native.extension as extension; extension.cores = lambda: 3; "
        "print(extension.extension().threads())"
    )
    environment = {n: v for n, v in os.environ.items() if n != "MLXNB_THREADS"} | variables
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
