"""The checks see what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from parity.families import FAMILIES

from mlxnb import native
from mlxnb.cache.paged_check import apart
from mlxnb.cache.paged_kernels import MlxKernels
from mlxnb.doctor import conversation, kernels
from mlxnb.doctor.finding import within
from mlxnb.sessions.local import LocalEngine

WRONG: dict[str, Callable[[mx.array], mx.array]] = {
    "a little off": lambda out: out * 1.001,
    "not a number": lambda out: out * mx.nan,
    "zeros": mx.zeros_like,
}


@pytest.mark.skipif(not native.available(), reason=native.reason() or "")
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_kernel_that_is_wrong_is_found(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[mx.array], mx.array]
) -> None:
    right = kernels.kernel
    monkeypatch.setattr(kernels, "kernel", lambda name: lambda *a: wrong(right(name)(*a)))
    assert [f.check for f in kernels.cpu_checks() if f.good] == []


def test_a_kernel_that_refuses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> mx.array:
        raise ValueError("not on this machine")

    monkeypatch.setattr(kernels, "kernel", lambda name: refuse)
    found = list(kernels.cpu_checks())
    assert len(found) == len(kernels.CPU)
    assert {f.told for f in found if f.good is False} == {"ValueError: not on this machine"}


class Blind(MlxKernels):
    """Attends without its window, or to nothing."""

    def attend(self, pool: Any, call: Any, layer: int, *rest: Any) -> mx.array:
        queries, scale, window, sinks = rest
        out = super().attend(pool, call, layer, queries, scale, None, sinks)
        return out if window is not None else out * mx.nan


@pytest.mark.parametrize("window", [None, 9])
def test_attention_over_blocks_that_is_wrong_is_found(window: int | None) -> None:
    assert apart(MlxKernels(), window) == 0.0
    assert apart(Blind(), window) > 0.01


@pytest.mark.parametrize(("difference", "good"), [(1e-5, True), (1e-3, False)])
def test_a_difference_is_held_against_its_bound(difference: float, good: bool) -> None:
    assert within("it", difference, 1e-4).good is good
    assert within("it", float("nan"), 1e-4).good is False


def test_without_the_demo_model_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path))
    (finding,) = conversation.checks()
    assert finding.good is None and "mlxnb pull demo" in finding.told
    assert list(tmp_path.iterdir()) == []


def test_a_token_that_a_cold_run_would_not_choose_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    engine = LocalEngine(budget=2**26)
    try:
        name = engine.load(FAMILIES["llama"].save(tmp_path / "model"), progress=False).name
        turn = engine.session(name).send("say it", max_tokens=6)
        record, model = engine.ledger[turn.id], engine.core.runtime(name).model
        assert conversation._off(engine, model, record) <= 1
        record.output[-1] += 1
        assert conversation._off(engine, model, record) > 1
    finally:
        engine.close()
