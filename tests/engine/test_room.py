"""A budget that is hardly enough: who waits, who makes way, who is refused."""

from __future__ import annotations

import gc
from typing import Any

import mlx.core as mx
import pytest

from mlxnb import mlxlm
from mlxnb.engine.request import Request
from mlxnb.errors import BudgetExceeded
from mlxnb.mlxlm import STEP

from .running import Engine, alternate, prompt_of, start_together, tiny, until, wait


@pytest.fixture
def step(engine: Engine) -> int:
    """Bytes of the smallest live cache."""
    return int(STEP * engine.core.store.space("tiny").pool.token_bytes)


def assert_all_right(engine: Engine, requests: list[Request]) -> None:
    for request in requests:
        assert wait(request).error is None
        count = len(request.generated)
        assert request.generated == engine.alone(request.prompt, count)
    engine.settled()


def held_at_every_step(engine: Engine) -> list[int]:
    """Notes by how much the budget is passed, whenever the model is called."""
    over: list[int] = []
    store = engine.core.store
    engine.models["tiny"].before = lambda ids: over.append(store.nbytes - store.budget)
    return over


def test_a_prompt_that_can_never_fit_is_refused(engine: Engine, step: int) -> None:  # C17
    engine.run(engine.request(prompt_of(40), 4, owner="a"))
    engine.core.budget = 4 * step
    request = engine.start(engine.request(prompt_of(5 * STEP), 4))
    error = wait(request).error
    assert isinstance(error, BudgetExceeded) and "budget" in str(error)
    following = engine.request([*prompt_of(40), 5], 4, owner="a")
    engine.run(following)
    assert (following.cached or 0) >= 40


@pytest.mark.usefixtures("contiguous")
def test_one_that_finds_no_room_waits_until_another_has_ended(engine: Engine, step: int) -> None:
    engine.core.budget = 3 * step
    over = held_at_every_step(engine)
    requests = [engine.request(prompt_of(STEP + 20, seed=n), 6) for n in range(3)]
    start_together(engine, requests)
    assert_all_right(engine, requests)
    assert max(over) <= 0
    assert [request for request, _ in engine.ended] == requests
    assert max(engine.models["tiny"].widths) == 1


def test_another_model_s_end_can_make_room(engine: Engine, step: int) -> None:
    engine.install("other", lambda: tiny(seed=3))
    engine.core.budget = 3 * step
    alternate(engine, STEP + 20)


def test_what_others_were_promised_gives_way_before_anybody_is_refused(
    engine: Engine, step: int
) -> None:
    """Two hot caches kept for two that wait fill the budget; a third is first in the queue."""
    stems = [prompt_of(STEP - 20, seed=n) for n in range(2)]
    for n, stem in enumerate(stems):
        engine.run(engine.request(stem, 2, owner=f"s{n}"))
    engine.core.budget = 2 * step
    first = engine.request(prompt_of(STEP + 10, seed=7), 4)
    others = [engine.request([*stem, 9], 4, owner=f"s{n}") for n, stem in enumerate(stems)]
    start_together(engine, [first, *others])
    assert_all_right(engine, [first, *others])
    assert [request for request, _ in engine.ended][2:] == [first, *others]


def test_promises_of_another_model_s_requests_give_way_too(engine: Engine, step: int) -> None:
    engine.install("other", lambda: tiny(seed=3))
    stem = prompt_of(STEP - 20)
    engine.run(engine.request(stem, 2, model="other", owner="a"))
    engine.core.budget = 2 * step
    first = engine.request(prompt_of(STEP + 10, seed=7), 4)
    second = engine.request([*stem, 9], 4, model="other", owner="a")
    with engine.held():
        engine.core.lane("other").admission.rows = 0
        engine.start(first), engine.start(second)
    until(lambda: first.done)
    assert first.error is None or isinstance(first.error, BudgetExceeded)
    engine.core.lane("other").admission.rows = 8
    engine.core.owner.wake()
    assert wait(second).error is None


@pytest.mark.usefixtures("contiguous")
def test_the_newest_row_makes_way_and_comes_back(
    engine: Engine, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both answers outgrow what the budget holds together."""
    monkeypatch.setattr("mlxnb.engine.runtime.LARGEST", 64)
    engine.core.budget = 5 * step
    over = held_at_every_step(engine)
    requests = [engine.request(prompt_of(STEP - 60, seed=n), 400, owner=f"s{n}") for n in range(2)]
    start_together(engine, requests)
    for request in requests:
        assert wait(request).error is None
    fed = engine.models["tiny"].fed
    for request in requests:
        assert request.generated == engine.alone(request.prompt, 400)
    engine.settled()
    assert max(over) <= 0
    assert [request for request, _ in engine.ended] == requests
    assert requests[0].record.recomputed_tokens == 0 < requests[1].record.recomputed_tokens
    records = [request.record for request in requests]
    computed = sum(r.decode_inputs + r.recomputed_tokens for r in records)
    assert fed == sum(len(request.prompt) for request in requests) + computed


@pytest.mark.usefixtures("contiguous")
def test_a_row_that_left_its_batch_has_what_is_reserved(engine: Engine, step: int) -> None:
    long, short = engine.request(prompt_of(STEP - 40), 400), engine.request(prompt_of(60), 3)
    sizes: list[tuple[int, int]] = []

    def look(ids: list[list[int]]) -> None:
        if short.done and long.live is not None and long.live.caches is not None:
            sizes.append((mlxlm.nbytes(long.live.caches), long.live.reserved))

    engine.models["tiny"].before = look
    start_together(engine, [long, short])
    assert_all_right(engine, [long, short])
    assert long.record.batch_joins == 1
    assert len(sizes) > 300 and all(real == reserved for real, reserved in sizes)


def test_rows_that_left_a_batch_hold_none_of_it(engine: Engine) -> None:
    def active() -> int:
        gc.collect()
        engine.core.owner.call(mx.clear_cache)
        return int(mx.get_active_memory())

    before = active()
    requests = [engine.request(prompt_of(500, seed=n), 3 + 4 * n) for n in range(4)]
    start_together(engine, requests)
    assert_all_right(engine, requests)
    assert max(engine.models["tiny"].widths) > 2
    assert active() - before <= 1.05 * engine.core.store.nbytes


@pytest.mark.usefixtures("contiguous")
def test_rows_that_do_not_fit_a_common_batch_run_beside_each_other(
    engine: Engine, step: int
) -> None:
    engine.core.budget = 3 * step
    requests = [engine.request(prompt_of(40, seed=n), 6) for n in range(2)]
    start_together(engine, requests)
    assert_all_right(engine, requests)
    assert all(r.record.batch_joins == 0 for r in requests)


@pytest.mark.usefixtures("paged")
@pytest.mark.parametrize("slabs", [3, 4, 6])
def test_paged_rows_grow_and_share_within_the_budget(engine: Engine, slabs: int) -> None:
    """More than fits: rows with a common beginning, some make way for others."""
    pool = engine.core.store.space("tiny").pool
    engine.core.budget = slabs * pool.slab_bytes
    over = held_at_every_step(engine)
    stem = prompt_of(120)
    requests = [
        engine.request([*stem, *prompt_of(9 + n, seed=n)], 60 + 30 * n, owner=f"s{n}")
        for n in range(6)
    ]
    start_together(engine, requests)
    assert_all_right(engine, requests)
    assert max(over) <= 0
    assert max(engine.models["tiny"].widths) >= 2


@pytest.mark.usefixtures("contiguous")
def test_an_answer_that_outgrows_the_budget_is_an_error(engine: Engine, step: int) -> None:
    engine.core.budget = 2 * step
    request = engine.start(engine.request(prompt_of(STEP), 2 * STEP))
    assert isinstance(wait(request).error, BudgetExceeded)
    assert STEP - 3 <= len(request.generated) <= STEP
    assert engine.core.store.nbytes == 0
    assert engine.answer(prompt_of(40)) == engine.alone(prompt_of(40), 8)


def test_kv_of_unknown_size_is_held_to_the_budget(bare: Engine) -> None:  # C17
    """Of a model of any kind, though nobody knows beforehand what it takes."""
    from mlx_lm.models.cache import KVCache

    class Other(KVCache):  # type: ignore[misc]
        """Not known to keep all its keys."""

    class Odd:
        def __init__(self) -> None:
            self._model = tiny()

        def make_cache(self) -> list[Any]:
            return [Other(), Other()]

        def __call__(self, inputs: Any, cache: Any = None) -> Any:
            return self._model(inputs, cache=cache)

    bare.install("tiny", Odd)
    request = bare.request(prompt_of(300), 8)
    bare.start(request)
    until(lambda: bool(request.generated))
    assert wait(request).error is None
    assert bare.core.store.nbytes == 0
    bare.core.budget = 300_000
    refused = bare.start(bare.request(prompt_of(3000), 8))
    assert isinstance(wait(refused).error, BudgetExceeded)
    assert bare.core.store.nbytes == 0
    again = bare.request(prompt_of(300), 8)
    bare.run(again)
    assert (again.cached, again.generated) == (0, request.generated)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_under_pressure(engine: Engine, step: int, seed: int) -> None:  # C17
    """Sessions that share a beginning, come in waves, and never fit together."""
    engine.core.budget = 6 * step
    over = held_at_every_step(engine)
    stem = prompt_of(120, seed=seed)
    said = {n: [*stem, 30 + n] for n in range(6)}
    requests: list[Request] = []
    for wave in range(3):
        requests = [
            engine.request(said[n], 20 + 30 * ((n + wave) % 3), owner=f"s{n}") for n in range(6)
        ]
        start_together(engine, requests)
        assert_all_right(engine, requests)
        for n, request in enumerate(requests):
            said[n] = [*said[n], *request.generated, 40 + wave]
    assert max(over) <= 0
    assert len(engine.ended) == 18
