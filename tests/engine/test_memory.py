"""An engine on a system that runs short of memory: what goes, who waits, who is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest

from mlxnb.engine.activations import Activations
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Rate
from mlxnb.errors import BudgetExceeded, ShortOfMemory
from mlxnb.mlxlm import STEP
from mlxnb.models.memory import System

from .running import Engine, alternate, prompt_of, start_together, tiny, until, wait

MIB, GIB = 2**20, 2**30
RESERVE = 512 * MIB
"""What 8 GiB leave to others."""
PLENTY = 4 * GIB


class Machine:
    """A system of 8 GiB where KV may take ``roomy`` bytes before the reserve is touched.

    ``left``: what is there before the device aborts, where it does.
    """

    def __init__(self) -> None:
        self.roomy = PLENTY
        self.left: int | None = None
        self.engine: Engine | None = None
        self.system = System(lambda: 8 * GIB, self._available, lambda: self.left)

    def _available(self) -> int:
        held = self.engine.core.store.nbytes if self.engine is not None else 0
        return max(0, RESERVE + self.roomy - held)


@pytest.fixture(params=["paged", "contiguous"])
def caches(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(request.param)


@pytest.fixture
def machine(caches: None, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr("mlxnb.engine.pressure.EVERY_S", 0.0)
    no_pool = SimpleNamespace(get_cache_memory=lambda: 0, clear_cache=lambda: None)
    monkeypatch.setattr("mlxnb.engine.pressure.mx", no_pool)
    return Machine()


@pytest.fixture
def engine(machine: Machine) -> Iterator[Engine]:
    made = Engine(budget=64 * MIB, system=machine.system)
    made.install()
    machine.engine = made
    yield made
    made.close()


@pytest.fixture
def step(engine: Engine) -> int:
    """Bytes of KV of 256 tokens: the smallest live cache, and a slab of the pool."""
    size = int(STEP * engine.core.store.space("tiny").pool.token_bytes)
    assert size == engine.core.store.space("tiny").pool.slab_bytes
    return size


def hot(engine: Engine) -> list[str | None]:
    """Sessions whose KV is there, the least recently used first."""
    return [live.owner for live in engine.core.store.space("tiny").hot()]


def look(engine: Engine) -> int:
    """The limit after the engine's thread has looked at the system."""
    engine.core.owner.call(engine.core._life.pressure.look)
    return engine.core.store.room.limit


# --- what goes --------------------------------------------------------------------------------


def test_what_was_used_least_recently_goes_first(
    engine: Engine, machine: Machine, step: int
) -> None:
    for n in range(3):
        engine.run(engine.request(prompt_of(STEP - 40, seed=n), 4, owner=f"s{n}"))
    machine.roomy = step
    assert look(engine) == step
    assert engine.core.store.nbytes <= step
    assert engine.core.budget == 64 * MIB
    reused = []
    for n in (2, 1, 0):
        again = engine.request([*prompt_of(STEP - 40, seed=n), 5], 4, owner=f"s{n}")
        engine.run(again)
        reused.append(again.cached)
        assert again.generated == engine.alone(again.prompt, 4)
    assert reused == [STEP - 40, 0, 0]
    engine.settled()


def test_an_idle_engine_looks_too(
    engine: Engine, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxnb.engine.owner.WATCH_S", 0.01)
    engine.run(engine.request(prompt_of(100), 4, owner="a"))
    assert engine.core.store.nbytes > 0
    machine.roomy = 0
    until(lambda: engine.core.store.nbytes == 0)


def test_what_is_pinned_stays(engine: Engine, machine: Machine) -> None:
    engine.run(engine.request(prompt_of(100), 4, owner="a"))
    (live,) = engine.core.store.lives()
    engine.core.store.hand.pin(live.id)
    machine.roomy = 0
    look(engine)
    assert hot(engine) == [] and engine.core.store.lives() == [live]


# --- who waits --------------------------------------------------------------------------------


def test_new_requests_wait_until_others_have_ended(
    engine: Engine, machine: Machine, step: int
) -> None:
    """Memory for two of three: the third comes after one of them, and nobody loses a token."""
    machine.roomy = 3 * step if engine.core.runtime("tiny").paged else 5 * step
    over: list[int] = []
    store = engine.core.store
    engine.models["tiny"].before = lambda ids: over.append(store.nbytes - machine.roomy)
    requests = [engine.request(prompt_of(STEP + 20, seed=n), 20) for n in range(3)]
    start_together(engine, requests)
    for request in requests:
        assert wait(request).error is None
        assert request.generated == engine.alone(request.prompt, 20)
    assert max(over) <= 0
    assert [request.record.recomputed_tokens for request in requests] == [0, 0, 0]
    ends = [request.clock.last_token or 0 for request in requests[:2]]
    assert (requests[2].clock.admitted or 0) > min(ends)
    engine.settled()


def test_another_model_s_end_makes_room(engine: Engine, machine: Machine, step: int) -> None:
    engine.install("other", lambda: tiny(seed=3))
    machine.roomy = 3 * step
    alternate(engine, STEP + 20)


# --- who is refused ---------------------------------------------------------------------------


def test_what_cannot_begin_whatever_ends_is_refused_at_once(
    engine: Engine, machine: Machine, step: int
) -> None:
    machine.roomy = 2 * step
    request = engine.request(prompt_of(3 * STEP), 4)
    with pytest.raises(ShortOfMemory, match="close other programs"):
        engine.start(request)
    assert isinstance(ShortOfMemory("x"), BudgetExceeded)
    assert engine.answer(prompt_of(40), 4) == engine.alone(prompt_of(40), 4)
    machine.roomy = PLENTY
    engine.run(request)
    assert request.generated == engine.alone(request.prompt, 4)
    engine.settled()


def test_memory_that_goes_while_a_request_waits_refuses_it(
    engine: Engine, machine: Machine, step: int
) -> None:
    engine.run(engine.request(prompt_of(40), 4, owner="a"))
    request = engine.request(prompt_of(3 * STEP), 4)
    with engine.held():
        engine.start(request)
        machine.roomy = step
    error = wait(request).error
    assert isinstance(error, ShortOfMemory) and "try again later" in str(error)
    assert engine.core.store.nbytes <= step
    machine.roomy = PLENTY
    again = engine.request(prompt_of(3 * STEP), 4)
    engine.run(again)
    assert again.generated == engine.alone(again.prompt, 4)


def test_what_never_fits_is_the_budget_s_fault(engine: Engine, machine: Machine, step: int) -> None:
    engine.core.budget = 2 * step
    machine.roomy = step
    request = engine.start(engine.request(prompt_of(5 * STEP), 4))
    assert type(wait(request).error) is BudgetExceeded


# --- it comes back ----------------------------------------------------------------------------


def test_a_request_does_not_wait_for_the_limit_to_come_back(
    engine: Engine, machine: Machine, step: int
) -> None:
    """The cache grows slowly again; what is asked for now is there at once."""
    machine.roomy = 0
    assert look(engine) == 0
    machine.roomy = PLENTY
    engine.run(engine.request(prompt_of(3 * STEP), 4))


def test_the_whole_budget_comes_back(
    engine: Engine, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxnb.engine.pressure.RECOVERY_S", 0.05)
    machine.roomy = 0
    assert look(engine) == 0
    machine.roomy = PLENTY
    until(lambda: look(engine) == 64 * MIB)
    assert engine.core.memory().limit_bytes == engine.core.memory().budget_bytes == 64 * MIB


# --- what runs --------------------------------------------------------------------------------


def test_what_runs_goes_on_while_the_reserve_lasts(
    engine: Engine, machine: Machine, step: int
) -> None:
    """Its KV outgrows what it began with, and all that others left is gone."""
    request = engine.request(prompt_of(STEP - 20), 2 * STEP, owner="a")
    engine.start(request)
    until(lambda: len(request.generated) >= 3)
    machine.roomy = 0
    assert wait(request).error is None
    assert request.generated == engine.alone(request.prompt, 2 * STEP)
    assert request.record.recomputed_tokens == 0
    assert engine.core.store.nbytes <= 4 * step


def test_several_that_run_are_not_harmed(engine: Engine, machine: Machine) -> None:
    requests = [engine.request(prompt_of(STEP - 30, seed=n), 300, owner=f"s{n}") for n in range(3)]
    start_together(engine, requests)
    until(lambda: all(len(request.generated) >= 2 for request in requests))
    machine.roomy = 0
    for request in requests:
        assert wait(request).error is None
        assert request.generated == engine.alone(request.prompt, 300)
        assert request.record.recomputed_tokens == 0
    engine.settled()


def test_when_nothing_is_left_it_ends_with_an_error_that_says_so(
    engine: Engine, machine: Machine
) -> None:
    request = engine.request(prompt_of(STEP - 20), 2 * STEP, owner="a")
    engine.start(request)
    until(lambda: len(request.generated) >= 3)
    machine.roomy = -RESERVE
    error = wait(request).error
    assert isinstance(error, ShortOfMemory) and "no room for its answer" in str(error)
    assert len(request.generated) >= 3
    assert request.generated == engine.alone(request.prompt, len(request.generated))
    machine.roomy = PLENTY
    assert engine.answer(prompt_of(40)) == engine.alone(prompt_of(40), 8)
    engine.settled()


def test_of_several_the_newest_makes_way_and_comes_back(
    engine: Engine, machine: Machine, step: int
) -> None:
    """Not even the reserve has room for the KV of both."""
    requests = [engine.request(prompt_of(STEP - 30, seed=n), 120, owner=f"s{n}") for n in range(2)]
    start_together(engine, requests)
    until(lambda: all(len(request.generated) >= 2 for request in requests))
    machine.roomy = 3 * step + 100 - RESERVE * 3 // 4
    for request in requests:
        assert wait(request).error is None
        assert request.generated == engine.alone(request.prompt, 120)
    engine.settled()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_system_does_answers_are_right_or_refused(
    engine: Engine, machine: Machine, step: int, seed: int
) -> None:
    """Memory comes and goes at every call of the model; sessions share a beginning."""
    chance = random.Random(seed)
    amounts = [-RESERVE, -RESERVE // 2, 0, step, 3 * step, 6 * step, PLENTY]

    def change(ids: list[list[int]]) -> None:
        if chance.random() < 0.2:
            machine.roomy = chance.choice(amounts)

    engine.models["tiny"].before = change
    stem, requests = prompt_of(150, seed=seed), list[Request]()
    for n in range(16):
        prompt = [*stem[: chance.choice((20, 150))], *prompt_of(chance.randint(5, 300), seed=n)]
        request = engine.request(prompt, chance.randint(1, 120), owner=f"s{n % 5}")
        with suppress(ShortOfMemory):
            requests.append(engine.start(request, limited=False))
        if chance.random() < 0.3:
            wait(requests[-1]) if requests and not requests[-1].done else None
    errors = [ended.error for ended in map(outcome, requests)]
    assert all(error is None or isinstance(error, ShortOfMemory) for error in errors)
    engine.models["tiny"].before = lambda ids: None
    machine.roomy = PLENTY
    for request in requests:
        assert request.generated == engine.alone(request.prompt, len(request.generated))
    assert engine.answer(prompt_of(40)) == engine.alone(prompt_of(40), 8)
    engine.settled()


def outcome(request: Request) -> Request:
    """A request that has ended, whoever has read its events."""
    until(lambda: request.done)
    return request


# --- a device that aborts ---------------------------------------------------------------------


def test_chunks_shrink_to_what_is_left(engine: Engine, machine: Machine) -> None:
    runtime = engine.core.runtime("tiny")
    runtime.activations = Activations(1000, 10)
    runtime.rate = Rate(largest=2048, _recent_tokens=10_000, _recent_seconds=0.1)
    machine.left = runtime.activations.nbytes(50, 400)
    request = engine.request(prompt_of(400), 4)
    engine.run(request)
    chunks = [len(rows[0]) for rows in engine.models["tiny"].calls if len(rows[0]) > 1]
    assert sum(chunks) >= 398 and len(chunks) > 3
    done = 0
    for chunk in chunks:
        assert runtime.activations.nbytes(chunk, done) <= machine.left
        done += chunk
    assert request.generated == engine.alone(request.prompt, 4)


def test_kv_goes_before_a_request_is_refused_for_its_activations(
    engine: Engine, machine: Machine
) -> None:
    engine.run(engine.request(prompt_of(300), 4, owner="a"))
    engine.core.runtime("tiny").activations = Activations(1000, 10)
    machine.left = 0
    request = engine.start(engine.request(prompt_of(100, seed=5), 4))
    error = wait(request).error
    assert isinstance(error, ShortOfMemory) and "a chunk of 8 tokens" in str(error)
    assert hot(engine) == []
    machine.left = None
    assert engine.answer(prompt_of(40), 4) == engine.alone(prompt_of(40), 4)


# --- what is told -----------------------------------------------------------------------------


def test_the_row_says_what_is_held_and_what_is_left(
    engine: Engine, machine: Machine, step: int
) -> None:
    engine.run(engine.request(prompt_of(40), 4, owner="a"))
    machine.roomy = 3 * step
    look(engine)
    row = engine.core.memory()
    assert row.kv_bytes == engine.core.store.nbytes == step
    assert (row.limit_bytes, row.budget_bytes) == (3 * step, 64 * MIB)
    assert (row.available_bytes, row.reserve_bytes) == (RESERVE + 2 * step, RESERVE)
    assert row.total_bytes == row.weights_bytes + step + row.pool_bytes + row.snapshots_bytes
