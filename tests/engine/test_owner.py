"""The one thread: calls, work between them, death, and being stuck."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from mlxnb.engine.owner import Owner
from mlxnb.errors import EngineDied

Make = Callable[..., Owner]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes owners, and stops them in the end."""
    made: list[Owner] = []

    def owner(work: Callable[[], bool] = lambda: False, **options: object) -> Owner:
        made.append(Owner(work, **options))  # type: ignore[arg-type]
        return made[-1]

    yield owner
    for one in made:
        one.stop()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def die() -> None:
    raise SystemExit


# --- calls ------------------------------------------------------------------------------------


def test_a_call_returns_what_its_function_returns(make: Make) -> None:
    assert make().call(lambda: 6 * 7) == 42


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("late"), KeyError("k")])
def test_a_call_raises_what_its_function_raises(make: Make, error: Exception) -> None:
    def fail() -> None:
        raise error

    owner = make()
    with pytest.raises(type(error)) as caught:
        owner.call(fail)
    assert caught.value is error
    assert owner.healthy


def test_all_calls_run_on_one_thread_that_is_not_the_caller_s(make: Make) -> None:  # C15
    owner, seen = make(), []

    def look() -> None:
        seen.append(threading.current_thread())

    callers = [threading.Thread(target=owner.call, args=(look,)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(seen) == 8 and len(set(seen)) == 1
    assert seen[0] is not threading.current_thread()


def test_a_call_that_ends_as_its_caller_looks_up_is_not_late(
    make: Make, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The wait for it is over in the very moment in which it has its result."""
    monkeypatch.setattr("mlxnb.engine.owner.POLL_S", 0.0)
    owner, interval = make(), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # who waits looks up all the time, and would hold up the owner
    request.addfinalizer(lambda: sys.setswitchinterval(interval))
    assert [owner.call(lambda: 1) for _ in range(3000)] == [1] * 3000


def test_calls_run_in_order(make: Make) -> None:
    owner, seen, going, free = make(), [], threading.Event(), threading.Event()
    holder = threading.Thread(target=owner.call, args=(lambda: going.set() or free.wait(20),))
    holder.start()
    going.wait()
    callers = []
    for number in range(5):
        callers.append(threading.Thread(target=owner.call, args=(lambda n=number: seen.append(n),)))
        callers[-1].start()
        until(lambda: owner._calls.qsize() == len(callers))
    free.set()
    for caller in [holder, *callers]:
        caller.join()
    assert seen == [0, 1, 2, 3, 4]


def test_a_call_from_within_runs_at_once(make: Make) -> None:
    owner = make()
    assert owner.call(lambda: owner.call(threading.current_thread).name) == "mlxnb-engine"


def test_who_waits_can_do_something_meanwhile(make: Make) -> None:
    done, threads = threading.Event(), []

    def meanwhile() -> None:
        threads.append(threading.current_thread())
        done.set()

    assert make().call(lambda: done.wait(20), meanwhile)
    assert set(threads) == {threading.current_thread()}


def test_what_is_raised_meanwhile_reaches_the_caller(make: Make) -> None:
    free = threading.Event()

    def meanwhile() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make().call(lambda: free.wait(20), meanwhile)
    free.set()


# --- work -------------------------------------------------------------------------------------


def test_work_goes_on_while_there_is_some(make: Make) -> None:
    steps: list[int] = []
    make(lambda: steps.append(1) or len(steps) < 100)
    until(lambda: len(steps) == 100)
    time.sleep(0.05)
    assert len(steps) == 100


def test_waking_it_makes_it_look_for_work(make: Make) -> None:
    steps: list[int] = []
    owner = make(lambda: bool(steps.append(1)))
    until(lambda: len(steps) == 1)
    owner.wake()
    until(lambda: len(steps) == 2)


def test_calls_come_between_steps(make: Make) -> None:
    go_on = True
    owner = make(lambda: go_on)
    assert owner.call(lambda: 1) == 1
    go_on = False


def test_idle_is_called_once_when_there_was_nothing_to_do(make: Make) -> None:
    times: list[int] = []
    owner = make(idle=lambda: times.append(1), idle_after=0.02)
    until(lambda: bool(times))
    time.sleep(0.1)
    assert len(times) == 1
    owner.call(lambda: None)
    until(lambda: len(times) == 2)


# --- death ------------------------------------------------------------------------------------


def test_a_call_that_ends_the_thread_fails_with_engine_died(make: Make) -> None:  # C20
    owner = make()
    with pytest.raises(EngineDied):
        owner.call(die)
    assert not owner.healthy and "died" in owner.ailment


def test_calls_to_a_dead_thread_fail(make: Make) -> None:
    owner = make()
    with pytest.raises(EngineDied):
        owner.call(die)
    with pytest.raises(EngineDied, match=r"died|ended"):
        owner.call(lambda: 1)


def test_calls_that_wait_when_it_dies_fail(make: Make) -> None:
    owner, going, errors = make(), threading.Event(), []

    def slow_death() -> None:
        going.set()
        until(lambda: owner._calls.qsize() == 3)
        raise SystemExit

    def ask(function: Callable[[], object]) -> None:
        try:
            owner.call(function)
        except EngineDied as error:
            errors.append(error)

    callers = [threading.Thread(target=ask, args=(slow_death,))]
    callers[0].start()
    going.wait()
    for _ in range(3):
        callers.append(threading.Thread(target=ask, args=(lambda: 1,)))
        callers[-1].start()
    for caller in callers:
        caller.join(20)
    assert len(errors) == 4


def test_an_error_in_work_ends_it(make: Make) -> None:
    def work() -> bool:
        raise RuntimeError("broken")

    owner = make(work)
    until(lambda: not owner.healthy)
    with pytest.raises(EngineDied):
        owner.call(lambda: 1)


# --- being stuck ------------------------------------------------------------------------------


def test_a_stuck_call_fails_for_all_who_wait(make: Make) -> None:
    owner, free = make(stuck_after=0.1), threading.Event()
    with pytest.raises(EngineDied, match="stuck"):
        owner.call(lambda: free.wait(20))
    assert not owner.healthy
    with pytest.raises(EngineDied, match="stuck"):
        owner.call(lambda: 1)
    free.set()


def test_a_stuck_step_is_noticed(make: Make) -> None:
    free = threading.Event()
    owner = make(lambda: not free.wait(20), stuck_after=0.1)
    until(lambda: not owner.healthy)
    free.set()


def test_a_long_call_that_beats_is_not_stuck(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("mlxnb.engine.owner.time", SimpleNamespace(monotonic=lambda: now[0]))
    owner, health = make(stuck_after=10.0), []

    def long() -> None:
        for _ in range(5):
            now[0] += 8.0
            health.append(owner.healthy)
            owner.beat()

    owner.call(long)
    assert health == [True] * 5


def test_sleeping_is_not_being_stuck(make: Make) -> None:
    owner = make(stuck_after=0.05)
    time.sleep(0.2)
    assert owner.healthy


@pytest.mark.parametrize("busy", [False, True])
def test_a_thread_that_was_given_up_runs_nothing_more(make: Make, busy: bool) -> None:
    owner, free, ran = make(lambda: busy, stuck_after=0.05), threading.Event(), []
    with pytest.raises(EngineDied):
        owner.call(lambda: free.wait(20))
    with pytest.raises(EngineDied):
        owner.call(lambda: ran.append(1))
    owner.stop(timeout=0)
    free.set()
    owner._thread.join(20)
    assert ran == []


# --- the end ----------------------------------------------------------------------------------


def test_stopping_twice_is_harmless(make: Make) -> None:
    owner = make()
    owner.stop()
    owner.stop()
    assert not owner.healthy


def test_stopping_finishes_the_present_step(make: Make) -> None:
    done: list[int] = []
    going = threading.Event()

    def work() -> bool:
        going.set()
        time.sleep(0.05)
        done.append(1)
        return False

    owner = make(work)
    going.wait()
    owner.stop()
    assert done == [1]


def test_its_last_act_is_to_clear_its_streams(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlx.core as mx

    acts: list[tuple[str, threading.Thread]] = []
    for name in ("synchronize", "clear_streams"):
        act = getattr(mx, name)

        def note(*of: mx.Stream, name: str = name, act: Callable[..., None] = act) -> None:
            acts.append((name, threading.current_thread()))
            act(*of)

        monkeypatch.setattr(mx, name, note)
    owner = make()
    with pytest.raises(EngineDied):
        owner.call(die)
    owner._thread.join(20)
    assert [name for name, _ in acts] == ["synchronize", "synchronize", "clear_streams"]
    assert {thread for _, thread in acts} == {owner._thread}
