"""Requests that run well: alone, in a batch, one after another, and what they account for."""

from __future__ import annotations

import threading

import pytest

from mlxnb.engine.events import Done, Piece, Prefill
from mlxnb.errors import QueueFull
from mlxnb.records.tokens import unpack

from .running import Engine, events, pieces, prompt_of, tiny, until, wait

# --- alone ------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 50, 300])
def test_a_request_alone_is_mlx_lm_s_loop(engine: Engine, length: int) -> None:
    prompt = prompt_of(length)
    assert engine.answer(prompt, 12) == engine.alone(prompt, 12)


def test_one_token_can_be_asked_for(engine: Engine) -> None:
    request = engine.request(prompt_of(20), max_tokens=1)
    engine.run(request)
    assert request.generated == engine.alone(prompt_of(20), 1)
    assert engine.ended == [(request, "length")]


def test_the_end_token_ends_and_is_counted(bare: Engine) -> None:
    watched = bare.install(ends=frozenset())
    tokens = bare.alone(prompt_of(20), 8)
    at = tokens.index(tokens[4])
    bare.install(ends=frozenset({tokens[4]}))
    assert watched is not bare.models["tiny"]
    request = bare.request(prompt_of(20), max_tokens=8)
    bare.run(request)
    assert request.generated == tokens[: at + 1]
    assert bare.ended[-1] == (request, "stop")
    assert request.machine.text == "".join(map(chr, tokens[:at]))


def test_events_tell_progress_pieces_and_one_end(engine: Engine) -> None:
    request = engine.start(engine.request(prompt_of(50), max_tokens=5))
    told = list(events(request))
    progress = [e for e in told if isinstance(e, Prefill)]
    assert [e.done for e in progress] == sorted(e.done for e in progress)
    assert (progress[0].done, progress[-1].done, progress[-1].total) == (0, 49, 50)
    said = "".join(e.text for e in told if isinstance(e, Piece))
    assert said == request.machine.text == "".join(map(chr, request.generated))
    assert told[-1] == Done("length") and not any(isinstance(e, Done) for e in told[:-1])


def test_the_phases_of_the_clock_add_up(engine: Engine) -> None:
    requests = [engine.request(prompt_of(30, seed=n), max_tokens=6) for n in range(3)]
    engine.run(*requests)
    for request in requests:
        timing = request.clock.timing(0.0)
        phases = (
            timing.pre_inference_s + timing.resolve_s + timing.load_wait_s + timing.queue_s
        ) + (timing.prefill_s + timing.decode_s)
        assert phases == pytest.approx(timing.total_s, abs=1e-3)
        assert min(timing.queue_s, timing.prefill_s, timing.decode_s) > 0
        assert timing.ttft_s is not None and timing.ttft_s < timing.total_s


# --- reuse ------------------------------------------------------------------------------------


def test_a_session_s_next_turn_computes_what_is_new(engine: Engine) -> None:
    first = engine.request(prompt_of(40), max_tokens=6, owner="a")
    engine.run(first)
    prompt = [*prompt_of(40), *first.generated, *prompt_of(10, seed=2)]
    second = engine.request(prompt, max_tokens=6, owner="a")
    engine.run(second)
    assert second.cached == 40 + 6 - 1
    assert second.generated == engine.alone(prompt, 6)
    engine.settled()


def test_the_same_prompt_twice(engine: Engine) -> None:  # C1
    one, two = (engine.request(prompt_of(40), owner="a") for _ in range(2))
    engine.run(one)
    engine.run(two)
    assert one.generated == two.generated
    assert two.cached == 39


def test_without_reuse_all_is_computed_and_nothing_filed(engine: Engine) -> None:
    engine.run(engine.request(prompt_of(40)))
    cold = engine.request([*prompt_of(40), 5], reuse=False)
    engine.run(cold)
    assert cold.cached == 0
    assert cold.generated == engine.alone([*prompt_of(40), 5], 8)
    again = engine.request([*prompt_of(40), 5, 6])
    engine.run(again)
    assert again.cached == 40


def test_salts_do_not_share(engine: Engine) -> None:
    engine.run(engine.request(prompt_of(40), salt="one"))
    other, same = (
        engine.request(prompt_of(40), salt="two"),
        engine.request(prompt_of(40), salt="one"),
    )
    engine.run(other)
    engine.run(same)
    assert (other.cached, same.cached) == (0, 39)


def test_a_prompt_can_be_computed_ahead(engine: Engine) -> None:
    ahead = engine.request(prompt_of(40), prefill_only=True)
    engine.run(ahead)
    assert ahead.generated == [] and engine.ended == [(ahead, "stop")]
    engine.models["tiny"].calls.clear()
    request = engine.request([*prompt_of(40), 9], owner="a")
    engine.run(request)
    assert request.cached == 40
    assert request.generated == engine.alone([*prompt_of(40), 9], 8)


def test_what_the_model_was_fed_is_what_the_records_say(engine: Engine) -> None:
    """prompt = cached + prefill, and nothing is computed that no record has."""
    watched = engine.models["tiny"]
    requests = [engine.request(prompt_of(60, seed=n), 5 + n, owner=f"s{n}") for n in range(4)]
    engine.run(*requests)
    requests += [
        engine.request([*r.prompt, *r.generated, 3, 4], 4, owner=r.owner) for r in requests
    ]
    engine.run(*requests[4:])
    prefill = sum(len(r.prompt) - (r.cached or 0) for r in requests)
    assert watched.fed == prefill + sum(r.record.decode_inputs for r in requests)
    assert all(r.record.recomputed_tokens == 0 for r in requests)


# --- together ---------------------------------------------------------------------------------


def test_a_batch_is_entered_by_the_second_and_left_with_the_last_but_one(engine: Engine) -> None:
    watched = engine.models["tiny"]
    long, short = engine.request(prompt_of(20), 30), engine.request(prompt_of(24, seed=2), 6)
    engine.start(long)
    until(lambda: len(long.generated) >= 4)
    engine.start(short)
    wait(short), wait(long)
    decode = watched.widths[watched.widths.index(2) :]
    assert 5 <= decode.count(2) <= 8
    assert decode[-5:] == [1] * 5 and decode[:4] == [2] * 4
    assert long.generated == engine.alone(prompt_of(20), 30)
    assert short.generated == engine.alone(prompt_of(24, seed=2), 6)
    assert long.record.batch_joins == short.record.batch_joins == 1
    engine.settled()


@pytest.mark.usefixtures("contiguous")
def test_copies_at_entering_and_leaving_are_counted(engine: Engine) -> None:
    alone = engine.request(prompt_of(20), 6)
    engine.run(alone)
    assert alone.record.copied_bytes == 0
    a, b = engine.request(prompt_of(20, seed=2), 6), engine.request(prompt_of(24, seed=3), 9)
    engine.run(a, b)
    token = engine.core.store.space("tiny").pool.token_bytes
    for request in (a, b):  # into the batch, with it, and out of it again
        assert request.record.copied_bytes >= (2 * len(request.prompt) + 1) * token


@pytest.mark.parametrize("rows", [2, 5, 8])
def test_ragged_rows_answer_as_if_alone(engine: Engine, rows: int) -> None:
    requests = [engine.request(prompt_of(5 + 9 * n, seed=n), 4 + n) for n in range(rows)]
    engine.run(*requests)
    for n, request in enumerate(requests):
        assert request.generated == engine.alone(prompt_of(5 + 9 * n, seed=n), 4 + n)
    assert max(engine.models["tiny"].widths) > 1
    engine.settled()


@pytest.mark.usefixtures("paged")
def test_paged_rows_of_any_length_share_a_batch_and_copy_nothing(engine: Engine) -> None:  # C51
    long, short = engine.request(prompt_of(1500), 20), engine.request(prompt_of(10, seed=2), 30)
    assert engine.core.runtime("tiny").paged
    engine.run(long, short)
    assert max(engine.models["tiny"].widths) == 2
    assert long.record.batch_joins == short.record.batch_joins == 1
    assert long.record.copied_bytes == short.record.copied_bytes == 0
    assert long.generated == engine.alone(prompt_of(1500), 20)
    assert short.generated == engine.alone(prompt_of(10, seed=2), 30)
    assert engine.core.store.copied_bytes == 0
    engine.settled()


@pytest.mark.usefixtures("contiguous")
def test_rows_of_very_different_length_do_not_share_a_batch(engine: Engine) -> None:  # C51
    long, short = engine.request(prompt_of(1500), 20), engine.request(prompt_of(10, seed=2), 20)
    with engine.held():
        engine.start(long), engine.start(short)
    wait(long), wait(short)
    assert max(engine.models["tiny"].widths) == 1
    assert long.record.batch_joins == short.record.batch_joins == 0
    assert short.generated == engine.alone(prompt_of(10, seed=2), 20)


@pytest.mark.usefixtures("contiguous")
def test_a_batch_is_counted_as_rows_times_the_longest(engine: Engine) -> None:  # C51
    requests = [engine.request(prompt_of(n, seed=n), 40) for n in (30, 250, 280)]
    with engine.held():
        for request in requests:
            engine.start(request)
    until(lambda: max(engine.models["tiny"].widths, default=0) == 3)
    with engine.held():
        lives = [r.live for r in requests if r.live is not None]
        longest = max(live.length for live in lives)
        assert len(lives) == 3
        assert sum(live.reserved for live in lives) >= 3 * longest * lives[0].token_bytes
    for request in requests:
        wait(request)


def test_a_cache_that_left_a_batch_is_continued(engine: Engine) -> None:
    requests = [engine.request(prompt_of(20 + n, seed=n), 5, owner=f"s{n}") for n in range(3)]
    engine.run(*requests)
    for request in requests:
        prompt = [*request.prompt, *request.generated, 7, 8]
        following = engine.request(prompt, 5, owner=request.owner)
        engine.run(following)
        assert following.cached == len(request.prompt) + request.record.decode_inputs
        assert following.generated == engine.alone(prompt, 5)
    engine.settled()


def test_two_models_run_at_once(engine: Engine) -> None:  # C14
    engine.install("other", lambda: tiny(seed=5, hidden_size=32))
    requests = [
        engine.request(prompt_of(20 + n, seed=n), 12, model=name)
        for n in range(3)
        for name in ("tiny", "other")
    ]
    engine.run(*requests)
    for request in requests:
        assert request.generated == engine.alone(request.prompt, 12, model=request.model)
    assert requests[0].generated != requests[1].generated
    engine.settled()


def test_many_threads_ask_at_once(engine: Engine) -> None:  # C16
    answers: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        for turn in range(3):
            request = engine.request(prompt_of(10 + number, seed=turn), 5)
            engine.start(request, limited=False)
            wait(request)
            answers[10 * number + turn] = request.generated

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 24
    for number, tokens in answers.items():
        assert tokens == engine.alone(prompt_of(10 + number // 10, seed=number % 10), 5)
    assert {t.name for t in engine.models["tiny"].threads} == {"mlxnb-engine"}  # C15
    engine.settled()


# --- the queue --------------------------------------------------------------------------------


def test_first_come_first_served(engine: Engine) -> None:
    engine.core.lane("tiny").admission.rows = 1
    requests = [engine.request(prompt_of(10, seed=n), 3) for n in range(5)]
    engine.run(*requests)
    assert [request for request, _ in engine.ended] == requests


def test_no_more_run_than_there_are_rows(engine: Engine) -> None:
    engine.core.lane("tiny").admission.rows = 3
    requests = [engine.request(prompt_of(10, seed=n), 5) for n in range(7)]
    engine.run(*requests)
    assert max(engine.models["tiny"].widths) == 3


def test_a_full_queue_refuses(engine: Engine) -> None:
    lane = engine.core.lane("tiny")
    lane.waiting.limit = 2
    with engine.held():
        kept = [engine.start(engine.request(prompt_of(10, seed=n), 2)) for n in range(2)]
        refused = engine.request(prompt_of(10), 2)
        with pytest.raises(QueueFull, match="2 requests wait for tiny"):
            engine.start(refused)
        assert refused.plan is not None and not refused.plan.pinned
        unlimited = engine.start(engine.request(prompt_of(10, seed=5), 2), limited=False)
    for request in (*kept, unlimited):
        assert wait(request).error is None
    engine.settled()


def test_what_is_accepted_is_told_before_it_runs(engine: Engine) -> None:
    request, told = engine.request(prompt_of(10), 2), []
    engine.core.plan(request)
    engine.core.submit(request, accepted=lambda: told.append(request.live))
    wait(request)
    assert told == [None]


# --- joining ----------------------------------------------------------------------------------


def test_a_prefix_that_another_computes_is_waited_for_and_taken_over(engine: Engine) -> None:
    watched, stem = engine.models["tiny"], prompt_of(300)
    requests = [engine.request([*stem, 20 + n], 4, owner=f"s{n}") for n in range(3)]
    engine.run(*requests)
    assert [r.cached for r in requests] == [0, 300, 300]
    assert [r.record.joined_tokens for r in requests] == [0, 300, 300]
    assert watched.fed == 301 + 2 + sum(r.record.decode_inputs for r in requests)
    for request in requests:
        assert request.generated == engine.alone(request.prompt, 4)
    engine.settled()


def test_samples_of_one_prompt_compute_it_once(engine: Engine) -> None:
    """What ``n`` becomes: requests that differ in their seed."""
    requests = [
        engine.request(prompt_of(200), 6, options={"temperature": 1.0, "seed": n}) for n in range(4)
    ]
    engine.run(*requests)
    assert [r.cached for r in requests] == [0, 199, 199, 199]
    assert len({tuple(r.generated) for r in requests}) == 4
    for request in requests:
        options = {"temperature": 1.0, "seed": request.sampling.seed}
        assert request.generated == engine.answer(prompt_of(200), 6, options=options, reuse=False)


def test_if_the_first_dies_the_second_computes(engine: Engine) -> None:
    stem, watched = prompt_of(300), engine.models["tiny"]
    first, second = engine.request([*stem, 20], 4), engine.request([*stem, 21], 4)

    def fail(ids: list[list[int]]) -> None:
        if first.live is not None and first.live.length > 100:
            watched.before = lambda ids: None
            raise RuntimeError("broken")

    watched.before = fail
    with engine.held():
        engine.start(first), engine.start(second)
    assert isinstance(wait(first).error, RuntimeError)
    assert wait(second).error is None
    assert (second.cached, second.generated) == (0, engine.alone([*stem, 21], 4))
    engine.settled()


def test_if_the_first_is_cancelled_what_it_had_is_taken_over(engine: Engine) -> None:  # C23
    stem, watched = prompt_of(1500), engine.models["tiny"]
    first, second = engine.request([*stem, 20], 4, owner="a"), engine.request([*stem, 21], 4)

    def cancel(ids: list[list[int]]) -> None:
        first.cancelled = first.live is not None and first.live.length > 100

    watched.before = cancel
    with engine.held():
        engine.start(first), engine.start(second)
    assert wait(first).finish_reason == "cancelled"
    assert wait(second).error is None
    assert 100 < (second.cached or 0) < 1500
    assert second.generated == engine.alone([*stem, 21], 4)


def test_others_pass_one_that_waits_for_a_prefix(engine: Engine) -> None:
    engine.core.lane("tiny").admission.rows = 2
    stem = prompt_of(800)
    first, second = engine.request([*stem, 20], 2), engine.request([*stem, 21], 2)
    other = engine.request(prompt_of(10, seed=3), 2)
    engine.run(first, second, other)
    assert next(request for request, _ in engine.ended) is other


def test_a_live_cache_s_tokens_are_what_was_fed(engine: Engine) -> None:  # C2
    requests = [engine.request(prompt_of(30, seed=n), 5, owner=f"s{n}") for n in range(3)]
    engine.run(*requests)
    held = {live.owner: unpack(bytes(live.tokens)) for live in engine.core.store.lives()}
    for request in requests:
        whole = [*request.prompt, *request.generated]
        tokens = held[request.owner]
        assert tokens in (whole, whole[:-1])
        assert len(tokens) == len(request.prompt) + request.record.decode_inputs


def test_text_goes_out_as_it_is_made(engine: Engine) -> None:
    request = engine.request(prompt_of(10), 5)
    engine.start(request)
    assert len(pieces(request)) == 5
