"""Streams that are handed on: how many there are, who has which, and what goes wrong on one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import psutil
import pytest

from mlxnb.engine import stream as streams
from mlxnb.engine.owner import Owner
from mlxnb.engine.stream import hand_on, take_stream
from mlxnb.sessions.local import LocalEngine

from .running import until


@pytest.fixture(autouse=True)
def none_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """What earlier tests' threads have left is not taken."""
    monkeypatch.setattr(streams, "_free", [])


def in_thread(function: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function).result(20)


def computed() -> mx.Stream:
    """Compute something where the thread's operations go; the stream it went to."""
    product = mx.arange(4) * 2
    mx.eval(product)
    assert product.tolist() == [0, 2, 4, 6]
    return mx.default_stream(mx.cpu)


def owner_stream() -> mx.Stream:
    owner = Owner(lambda: False)
    stream = owner.call(computed)
    owner.stop()
    return stream


def test_the_next_owner_has_the_stream_of_one_that_has_ended() -> None:
    first = owner_stream()
    assert owner_stream() == first
    assert owner_stream() == first


def test_two_owners_at_once_have_one_each() -> None:
    one, other = Owner(lambda: False), Owner(lambda: False)
    assert one.call(computed) != other.call(computed)
    for owner in (one, other):
        owner.stop()


def test_a_thread_that_ends_leaves_the_default_of_others_alone() -> None:
    mine = mx.default_stream(mx.cpu)
    assert owner_stream() != mine
    assert mx.default_stream(mx.cpu) == mine
    assert computed() == mine


def test_what_is_pending_is_computed_before_it_is_handed_on() -> None:
    kept: list[mx.array] = []

    def work() -> None:
        stream = take_stream()
        kept.append(mx.ones(8) + 1)
        mx.async_eval(kept[0])
        hand_on(stream)

    in_thread(work)
    assert kept[0].tolist() == [2.0] * 8


def test_an_array_is_read_after_its_thread_has_ended_and_its_stream_is_anothers() -> None:
    kept: list[mx.array] = []

    def work() -> None:
        stream = take_stream()
        kept.append(mx.ones(8) + len(kept))
        hand_on(stream)

    in_thread(work)
    in_thread(work)
    assert [array.tolist() for array in kept] == [[1.0] * 8, [2.0] * 8]


def test_one_that_failed_is_not_handed_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[mx.Stream] = []

    def fail(*_: object) -> None:
        raise RuntimeError("what was computed failed")

    def work() -> None:
        seen.append(take_stream())
        with monkeypatch.context() as patch:
            patch.setattr(mx, "synchronize", fail)
            hand_on(seen[-1])

    in_thread(work)
    in_thread(work)
    assert seen[0] != seen[1]
    assert "had pending failed: what was computed failed" in caplog.text


def test_engines_one_after_the_other_leave_no_thread() -> None:
    threads = psutil.Process().num_threads  # those of the system

    def engine() -> None:
        made = LocalEngine(budget=1 << 20)
        made.core.owner.call(computed)
        made.close()

    engine()
    before = threads()
    for _ in range(5):
        engine()
    until(lambda: threads() <= before)  # one that was waited for may need a moment to be gone
