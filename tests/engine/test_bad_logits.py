"""Logits that are no numbers end the request that they were for, and nothing of its KV is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Processor
from mlxnb.errors import BadLogits

from .running import Engine, prompt_of, start_together, tiny, until, wait

NAN, INF = float("nan"), float("inf")
BAD = 77
"""A token whose embedding is NaN where a model is `damaged`."""

Spoil = Callable[[list[list[int]]], list[int]]


class Sick:
    """A model some of whose logits are spoilt.

    ``spoil`` is called with the ids ``(rows, tokens)`` of each call, and names rows that get
    ``value`` for one token's logit.
    """

    def __init__(self) -> None:
        self.model = tiny()
        self.value = NAN
        self.spoil: Spoil = lambda ids: []

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        logits: mx.array = self.model(inputs, cache=cache)
        ids: Any = inputs.tolist()
        for row in self.spoil(ids):
            logits[row, -1, 5] = self.value
        return logits

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


@pytest.fixture(params=["paged", "contiguous"])
def caches(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(request.param)


@pytest.fixture
def sick(caches: None, bare: Engine) -> Sick:
    made: Sick = bare.install("tiny", Sick).model
    return made


@pytest.fixture
def damaged(caches: None, bare: Engine) -> Callable[[bool], None]:
    """Damages an embedding, or repairs it; it is damaged at first."""
    watched = bare.install("tiny", lambda: tiny(tie_word_embeddings=False))
    table = watched.model.model.embed_tokens
    whole = table.weight

    def damage(damaged: bool = True) -> None:
        def act() -> None:
            row = mx.full((1, whole.shape[1]), NAN)
            spoilt = mx.concatenate([whole[:BAD], row, whole[BAD + 1 :]])
            table.weight = spoilt if damaged else whole
            mx.eval(table.weight)

        bare.core.owner.call(act)

    damage()
    return damage


def sound_prompt(length: int, seed: int = 1) -> list[int]:
    return [token if token != BAD else BAD + 1 for token in prompt_of(length, seed)]


def bad_prompt(length: int, at: int, seed: int = 1) -> list[int]:
    prompt = sound_prompt(length, seed)
    prompt[at] = BAD
    return prompt


def fails(engine: Engine, request: Request) -> BadLogits:
    """Let it run: it ends with this error."""
    error = wait(engine.start(request)).error
    assert isinstance(error, BadLogits)
    return error


def nothing_is_kept(engine: Engine) -> None:
    assert engine.core.store.lives() == []
    assert len(engine.core.store.index) == 0
    engine.settled()


# --- alone ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_it_ends_with_an_error_that_names_model_and_token(
    bare: Engine, sick: Sick, value: float, options: dict[str, Any], count: int
) -> None:
    sick.value = value
    request = bare.request(prompt_of(20), 8, options=options, owner="a")
    sick.spoil = lambda ids: [0] if len(request.generated) >= max(0, count - 1) else []
    error = fails(bare, request)
    assert "tiny" in str(error) and f"token {len(request.generated) + 1} " in str(error)
    assert len(request.generated) <= count
    nothing_is_kept(bare)
    sick.spoil = lambda ids: []
    assert bare.answer(prompt_of(20)) == bare.alone(prompt_of(20), 8)


def test_what_was_given_out_before_is_right(bare: Engine, sick: Sick) -> None:
    request = bare.request(prompt_of(20), 8)
    calls = [0]

    def spoil(ids: list[list[int]]) -> list[int]:
        calls[0] += len(ids[0]) == 1
        return [0] if calls[0] == 4 else []

    sick.spoil = spoil
    assert "token 4 " in str(fails(bare, request))
    assert request.generated == bare.alone(prompt_of(20), 3)


def test_tokens_that_are_ruled_out_are_no_fault(bare: Engine, sick: Sick) -> None:
    sick.value, sick.spoil = -INF, lambda ids: list(range(len(ids)))
    bare.run(*(bare.request(prompt_of(20 + n), 6) for n in range(3)))


def test_what_a_processor_makes_of_them_is_told(bare: Engine, sick: Sick) -> None:
    wild = Processor(lambda tokens, logits: logits * NAN)
    error = fails(bare, bare.request(prompt_of(20), 4, extra_processors=[wild]))
    assert "options" in str(error)
    assert bare.answer(prompt_of(20)) == bare.alone(prompt_of(20), 8)


# --- beside others ----------------------------------------------------------------------------


def three(engine: Engine, **options: Any) -> list[Request]:
    return [
        engine.request(prompt_of(20 + 5 * n, seed=n), 12, owner=f"s{n}", **options)
        for n in range(3)
    ]


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 3}])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_the_row_at_fault_fails_alone(
    bare: Engine, sick: Sick, value: float, options: dict[str, Any], after: int
) -> None:
    requests = three(bare, options=options)
    wanted = [bare.answer(r.prompt, 12, options=options, reuse=False) for r in requests]
    sick.value = value
    sick.spoil = lambda ids: [1] if len(ids) == 3 and len(requests[1].generated) >= after else []
    start_together(bare, requests)
    assert isinstance(wait(requests[1]).error, BadLogits)
    for number in (0, 2):
        assert wait(requests[number]).error is None
        assert requests[number].generated == wanted[number]
    assert requests[1].generated == wanted[1][: len(requests[1].generated)]
    assert [request.setbacks for request in requests] == [0, 0, 0]
    assert {live.owner for live in bare.core.store.lives()} == {"s0", "s2"}
    bare.settled()


def test_a_row_s_first_token_in_a_batch(bare: Engine, sick: Sick) -> None:
    """Which mlx-lm draws by itself as the row comes."""
    first, second = bare.request(prompt_of(20), 40), bare.request(prompt_of(30, seed=2), 20)
    sick.spoil = lambda ids: [n for n, row in enumerate(ids) if row[-1:] == second.prompt[-1:]]
    assert second.prompt[-1] not in bare.alone(first.prompt, 40)
    bare.start(first)
    until(lambda: len(first.generated) >= 2)
    bare.start(second)
    error = wait(second).error
    assert isinstance(error, BadLogits) and second.generated == []
    assert wait(first).error is None
    assert first.generated == bare.alone(first.prompt, 40)


def test_the_last_row_s_token_as_it_leaves_the_batch(bare: Engine, sick: Sick) -> None:
    """It was drawn in the batch, and is read when the row is alone."""
    short, long = bare.request(prompt_of(20), 60), bare.request(prompt_of(30, seed=2), 90)
    sick.spoil = lambda ids: [0, 1] if len(ids) == 2 and len(short.generated) == 59 else []
    start_together(bare, [short, long])
    assert wait(short).error is None
    assert isinstance(wait(long).error, BadLogits)
    assert long.generated == bare.alone(long.prompt, 90)[: len(long.generated)]
    assert bare.answer(long.prompt, 4) == bare.alone(long.prompt, 4)


def test_a_token_that_is_read_as_another_request_comes(bare: Engine, sick: Sick) -> None:
    """The row alone is settled to enter a batch: what comes instead is decoded all the same."""
    first, second = bare.request(prompt_of(20), 400), bare.request(prompt_of(30, seed=2), 8)
    sick.spoil = lambda ids: [0] if second.live is not None and len(ids[0]) == 1 < 2 else []
    bare.start(first)
    until(lambda: len(first.generated) >= 2)
    with bare.held():
        bare.start(second)
    until(lambda: first.done)
    sick.spoil = lambda ids: []
    assert isinstance(wait(first).error, BadLogits)
    wait(second)
    assert bare.answer(second.prompt, 8) == bare.alone(second.prompt, 8)


# --- KV that is no numbers --------------------------------------------------------------------


Damage = Callable[[bool], None]


@pytest.mark.parametrize("at", [0, 90, -1])
def test_the_first_logits_show_it(bare: Engine, damaged: Damage, at: int) -> None:
    assert "token 1 " in str(fails(bare, bare.request(bad_prompt(100, at), 8, owner="a")))
    nothing_is_kept(bare)
    assert bare.answer(sound_prompt(100)) == bare.alone(sound_prompt(100), 8)


def test_a_prompt_that_is_warmed_is_looked_at(bare: Engine, damaged: Damage) -> None:
    """It has no logits."""
    prompt = bad_prompt(100, 60)
    error = fails(bare, bare.request(prompt, 1, prefill_only=True))
    assert "tiny computed" in str(error)
    nothing_is_kept(bare)
    damaged(False)
    bare.run(bare.request(prompt, 1, prefill_only=True))
    again = bare.request([*prompt, 9], 4)
    bare.run(again)
    assert again.cached == 100
    assert again.generated == bare.alone(again.prompt, 4)


def test_a_prompt_that_is_cancelled_is_looked_at(bare: Engine, damaged: Damage) -> None:
    prompt, watched = bad_prompt(300, 4), bare.models["tiny"]
    request = bare.request(prompt, 4, owner="a")

    def cancel(ids: list[list[int]]) -> None:
        request.cancelled = request.live is not None and request.live.length > 0

    watched.before = cancel
    done = wait(bare.start(request))
    assert (done.finish_reason, done.error) == ("cancelled", None)
    watched.before = lambda ids: None
    nothing_is_kept(bare)
    damaged(False)
    assert bare.answer(prompt, 4, owner="a") == bare.alone(prompt, 4)


def test_blocks_that_another_took_of_it_go_too(bare: Engine, damaged: Damage) -> None:
    """The index may have what is running and was not seen by logits yet."""
    prompt, watched = bad_prompt(300, 4), bare.models["tiny"]
    request = bare.request([*prompt, 3], 4)

    def carve(ids: list[list[int]]) -> None:
        live = request.live
        if live is not None and live.length >= 300:
            bare.core.store.room.carve(live, 300)
            for block in bare.core.store.index:
                block.pinned = True

    watched.before = carve
    fails(bare, request)
    watched.before = lambda ids: None
    nothing_is_kept(bare)
    damaged(False)
    assert bare.answer([*prompt, 3], 4) == bare.alone([*prompt, 3], 4)


def test_those_who_took_it_over_fail_too_and_the_next_is_right(
    bare: Engine, damaged: Damage
) -> None:
    stem, watched = bad_prompt(400, 30), bare.models["tiny"]
    requests = [bare.request([*stem, 3 + n], 6, owner=f"s{n}") for n in range(3)]
    start_together(bare, requests)
    for request in requests:
        assert isinstance(wait(request).error, BadLogits)
    nothing_is_kept(bare)
    damaged(False)
    watched.calls.clear()
    bare.run(*(again := [bare.request([*stem, 3 + n], 6) for n in range(3)]))
    for request in again:
        assert request.generated == bare.alone(request.prompt, 6)


def test_a_sound_beginning_stays(bare: Engine, damaged: Damage) -> None:
    stem = sound_prompt(512)
    bare.run(bare.request(stem, 1, prefill_only=True))
    fails(bare, bare.request([*stem, *bad_prompt(300, 200, seed=4)], 4))
    other = bare.request([*stem, 3, 4, 5], 4)
    bare.run(other)
    assert other.cached == len(stem)
    assert other.generated == bare.alone(other.prompt, 4)
    bare.settled()


def test_sound_hot_caches_of_others_stay(bare: Engine, damaged: Damage) -> None:
    stem = sound_prompt(64)
    bare.run(bare.request([*stem, 5], 4, owner="good"))
    fails(bare, bare.request([*stem, BAD, 6], 4, owner="bad"))
    again = bare.request([*stem, 5, 9], 4, owner="good")
    bare.run(again)
    assert (again.cached or 0) >= 65
    assert again.generated == bare.alone(again.prompt, 4)


@pytest.mark.parametrize("length", [40, 41, 47, 100])
def test_memory_that_held_it_is_used_again_without_harm(
    bare: Engine, damaged: Damage, length: int
) -> None:
    """Blocks are not cleared when they are freed: what is beyond a sequence's end is not read."""
    for seed in range(6):
        fails(bare, bare.request(bad_prompt(200, 3, seed), 4))
        prompt = sound_prompt(length, seed)
        wanted = bare.alone(prompt, 24)
        count = wanted.index(BAD) if BAD in wanted else 24
        assert bare.answer(prompt, count) == wanted[:count]
    requests = [bare.request(sound_prompt(length + n, seed=n), 4) for n in range(3)]
    bare.run(*requests)
    for request in requests:
        assert request.generated == bare.alone(request.prompt, 4)
