"""What goes wrong in one request stays there; what goes wrong in a batch is computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Rate
from mlxnb.engine.sampling import Processor
from mlxnb.errors import DetokenizerFailed, InvalidOption, ModelUnloaded

from .running import Engine, Letters, prompt_of, start_together, until, wait


class Fault(Exception):
    """What these tests let go wrong."""


def at_call(number: int, act: Callable[[], Any]) -> Callable[..., Any]:
    """A logits processor that acts at its n-th call, and else changes nothing."""
    calls = [0]

    def process(tokens: mx.array, logits: mx.array) -> Any:
        calls[0] += 1
        return act() if calls[0] == number else logits

    return process


def fail() -> None:
    raise Fault("on purpose")


class BadLetters(Letters):
    """A detokenizer that fails at the n-th token."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def add_token(self, token: int) -> None:
        self._left -= 1
        if not self._left:
            raise Fault("on purpose")
        super().add_token(token)


def three(engine: Engine, count: int = 12, **second: Any) -> list[Request]:
    """Three ragged requests, of which the one in the middle has more options."""
    return [
        engine.request(
            prompt_of(20 + 5 * n, seed=n), count, owner=f"s{n}", **(second if n == 1 else {})
        )
        for n in range(3)
    ]


def assert_neighbours_as_alone(engine: Engine, requests: list[Request]) -> None:
    first, _, third = requests
    for request in (first, third):
        assert wait(request).error is None
        assert request.generated == engine.alone(request.prompt, 12)


# --- one request's fault ----------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize(
    "act", [fail, lambda: mx.zeros((3,)), lambda: None], ids=["raises", "shape", "none"]
)
def test_a_processor_s_fault_in_a_batch_ends_its_request_alone(
    engine: Engine, number: int, act: Callable[[], Any]
) -> None:
    requests = three(engine, extra_processors=[Processor(at_call(number, act))])
    start_together(engine, requests)
    done = wait(requests[1])
    assert done.finish_reason == "error" and isinstance(
        done.error, Fault | ValueError | AttributeError
    )
    assert_neighbours_as_alone(engine, requests)
    assert [r.setbacks for r in requests] == [0, 0, 0]
    engine.settled()


def test_tokens_drawn_under_a_fault_are_not_given_out(engine: Engine) -> None:
    request = engine.request(prompt_of(20), 8, extra_processors=[Processor(at_call(4, fail))])
    engine.start(request)
    assert isinstance(wait(request).error, Fault)
    assert request.generated == engine.alone(prompt_of(20), 3)


@pytest.mark.parametrize("number", [1, 4])
def test_a_processor_s_fault_alone_ends_the_request(engine: Engine, number: int) -> None:
    request = engine.request(prompt_of(20), 8, extra_processors=[Processor(at_call(number, fail))])
    engine.start(request)
    assert isinstance(wait(request).error, Fault)
    assert engine.core.store.lives() == []
    assert engine.answer(prompt_of(20)) == engine.alone(prompt_of(20), 8)


def test_a_sampler_s_fault_ends_its_request_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlx_lm import sample_utils

    monkeypatch.setattr(sample_utils, "apply_min_p", lambda logprobs, min_p: fail())
    requests = three(engine, options={"temperature": 1.0, "min_p": 0.5})
    start_together(engine, requests)
    assert isinstance(wait(requests[1]).error, Fault)
    assert_neighbours_as_alone(engine, requests)
    engine.settled()


def test_a_fault_in_the_text_ends_its_request_alone(engine: Engine) -> None:
    requests = three(engine, detokenizer=BadLetters(4))
    start_together(engine, requests)
    error = wait(requests[1]).error
    assert isinstance(error, DetokenizerFailed) and isinstance(error.__cause__, Fault)
    assert "tiny" in str(error) and "token 4" in str(error)
    assert len(requests[1].generated) == 4
    assert_neighbours_as_alone(engine, requests)
    engine.settled()


def test_a_processor_that_widens_the_dtype_does_not_touch_its_neighbours(engine: Engine) -> None:
    inner = at_call(0, fail)
    wide = Processor(lambda tokens, logits: inner(tokens, logits).astype(mx.float16))
    out = wide(mx.array([1]), mx.zeros((1, 4)))
    assert out.dtype == mx.float32 and wide.fault is None


def test_a_fault_at_the_end_of_the_text_is_the_request_s(engine: Engine) -> None:
    class Unfinished(Letters):
        def finalize(self) -> None:
            raise Fault("on purpose")

    request = engine.start(engine.request(prompt_of(20), 4, detokenizer=Unfinished()))
    done = wait(request)
    assert done.finish_reason == "error" and isinstance(done.error, DetokenizerFailed)
    assert isinstance(done.error.__cause__, Fault)
    assert engine.answer(prompt_of(20), 4) == engine.alone(prompt_of(20), 4)
    engine.settled()


def test_a_ledger_that_fails_stops_nothing(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.on_end = lambda request, reason: fail()
    assert engine.answer(prompt_of(20)) == engine.alone(prompt_of(20), 8)
    assert "could not be recorded" in caplog.text
    assert engine.core.restarts == 0


# --- the model's own fault --------------------------------------------------------------------


def test_an_error_in_prefill_ends_the_request(engine: Engine) -> None:
    watched = engine.models["tiny"]

    def once(ids: list[list[int]]) -> None:
        watched.before = lambda ids: None
        raise Fault("on purpose")

    watched.before = once
    request = engine.start(engine.request(prompt_of(40), 4, owner="a"))
    assert isinstance(wait(request).error, Fault)
    assert engine.core.store.lives() == []
    assert engine.answer(prompt_of(40), 4, owner="a") == engine.alone(prompt_of(40), 4)
    engine.settled()


def test_an_error_in_decode_ends_the_request(engine: Engine) -> None:
    watched = engine.models["tiny"]
    request = engine.request(prompt_of(40), 10, owner="a")

    def once(ids: list[list[int]]) -> None:
        if len(request.generated) == 3:
            watched.before = lambda ids: None
            raise Fault("on purpose")

    watched.before = once
    engine.start(request)
    assert isinstance(wait(request).error, Fault)
    assert request.generated == engine.alone(prompt_of(40), len(request.generated))
    assert engine.core.store.lives() == []
    engine.settled()


@pytest.mark.parametrize("after", [0, 1, 4])
def test_rows_of_a_failed_batch_are_computed_again(
    engine: Engine, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is filed from it, nobody gets a token twice, and what was shown stays."""
    monkeypatch.setattr("mlxnb.engine.runtime.LARGEST", 8)
    watched, filed = engine.models["tiny"], []
    requests = [engine.request(prompt_of(20 + 5 * n, seed=n), 12, owner=f"s{n}") for n in range(3)]

    def once(ids: list[list[int]]) -> None:
        if len(ids) == 3 and min(len(r.generated) for r in requests) >= after:
            watched.before = lambda ids: None
            raise Fault("on purpose")

    watched.before = once
    retire = engine.core.store.retire

    def note(live: Any, carve: bool = False) -> None:
        filed.append(bytes(live.tokens))
        retire(live, carve)

    engine.core.store.retire = note  # type: ignore[method-assign]
    start_together(engine, requests)
    assert [wait(request).error for request in requests] == [None] * 3
    counted = [
        len(r.prompt) + r.record.decode_inputs + r.record.recomputed_tokens for r in requests
    ]
    # the newest row's last prompt token was fed, and nothing had come of it yet
    assert watched.fed == sum(counted) + (after == 0)
    for request in requests:
        assert request.generated == engine.alone(request.prompt, 12)
        assert request.machine.text == "".join(map(chr, request.generated))
        assert (request.setbacks, request.cached) == (1, 0)
        assert request.record.recomputed_tokens >= len(request.prompt) - 1
    assert len(filed) == 3
    engine.settled()


def test_seeded_rows_of_a_failed_batch_go_on_as_they_would_have(engine: Engine) -> None:
    watched = engine.models["tiny"]
    options = [{"temperature": 1.0, "seed": n, "repetition_penalty": 1.2} for n in range(3)]
    wanted = [
        engine.answer(prompt_of(20 + n), 12, options=options[n], reuse=False) for n in range(3)
    ]
    requests = [engine.request(prompt_of(20 + n), 12, options=options[n]) for n in range(3)]

    def once(ids: list[list[int]]) -> None:
        if len(ids) == 3 and len(requests[2].generated) == 5:
            watched.before = lambda ids: None
            raise Fault("on purpose")

    watched.before = once
    start_together(engine, requests)
    assert [wait(r).error for r in requests] == [None] * 3
    assert [r.generated for r in requests] == wanted


def test_a_model_whose_batches_always_fail_still_serves(engine: Engine) -> None:
    watched = engine.models["tiny"]

    def never(ids: list[list[int]]) -> None:
        if len(ids) > 1:
            raise Fault("on purpose")

    watched.before = never
    requests = [engine.request(prompt_of(20 + n, seed=n), 6) for n in range(4)]
    start_together(engine, requests)
    for request in requests:
        assert wait(request).error is None
        assert request.generated == engine.alone(request.prompt, 6)
        assert request.setbacks <= 2
    engine.settled()


def test_a_row_s_own_fault_is_known_after_the_batch_has_failed(engine: Engine) -> None:
    """The processor fails first, then the model in the same step."""
    watched = engine.models["tiny"]
    requests = three(engine, extra_processors=[Processor(at_call(3, fail))])

    def once(ids: list[list[int]]) -> None:
        if requests[1].fault is not None and len(ids) > 1:
            watched.before = lambda ids: None
            raise Fault("on purpose")

    watched.before = once
    start_together(engine, requests)
    assert isinstance(wait(requests[1]).error, Fault)
    assert_neighbours_as_alone(engine, requests)
    engine.settled()


def test_a_failed_step_leaves_other_models_alone(engine: Engine) -> None:
    other = engine.install("other")
    watched = engine.models["tiny"]

    def always(ids: list[list[int]]) -> None:
        raise Fault("on purpose")

    watched.before = always
    bad, good = engine.request(prompt_of(20)), engine.request(prompt_of(20), model="other")
    start_together(engine, [bad, good])
    assert isinstance(wait(bad).error, Fault)
    assert wait(good).error is None and other.fed > 0


# --- cancelling -------------------------------------------------------------------------------


def test_cancelled_in_the_queue(engine: Engine) -> None:  # C22
    engine.core.lane("tiny").admission.rows = 1
    first, second = engine.request(prompt_of(20), 20), engine.request(prompt_of(20, seed=2), 5)
    with engine.held():
        engine.start(first), engine.start(second)
        second.cancelled = True
    done = wait(second)
    assert (done.finish_reason, done.error, second.generated) == ("cancelled", None, [])
    assert second.cached is None
    assert wait(first).finish_reason == "length"
    engine.settled()


def test_cancelled_while_it_waits_for_another_s_prefix(engine: Engine) -> None:
    watched, stem = engine.models["tiny"], prompt_of(1500)
    first, second = engine.request([*stem, 3], 3), engine.request([*stem, 4], 3)

    def cancel(ids: list[list[int]]) -> None:
        second.cancelled = first.live is not None and first.live.length > 0

    watched.before = cancel
    start_together(engine, [first, second])
    assert wait(second).finish_reason == "cancelled"
    assert not first.done
    assert wait(first).error is None
    engine.settled()


def test_cancelled_in_prefill_stops_within_a_chunk_and_keeps_what_is_done(engine: Engine) -> None:
    watched, prompt = engine.models["tiny"], prompt_of(900)  # C22, C23
    request = engine.request(prompt, 5, owner="a")

    def cancel(ids: list[list[int]]) -> None:
        request.cancelled = len(watched.calls) == 2

    watched.before = cancel
    engine.start(request)
    assert wait(request).finish_reason == "cancelled"
    assert len(watched.calls) == 3
    done = watched.fed
    again = engine.request(prompt, 5, owner="b")
    engine.run(again)
    assert again.cached == done
    assert again.generated == engine.alone(prompt, 5)
    engine.settled()


@pytest.mark.parametrize("others", [0, 1, 3])
def test_cancelled_in_decode(engine: Engine, others: int) -> None:  # C22
    request = engine.request(prompt_of(20), 1000, owner="a")
    rest = [engine.request(prompt_of(25 + n, seed=n), 12) for n in range(others)]
    start_together(engine, [request, *rest])
    until(lambda: len(request.generated) >= 5)
    request.cancelled = True
    done = wait(request)
    assert (done.finish_reason, done.error) == ("cancelled", None)
    count = len(request.generated)
    assert count < 1000 and request.generated == engine.alone(prompt_of(20), count)
    for other in rest:
        assert wait(other).error is None
        assert other.generated == engine.alone(other.prompt, 12)
    following = engine.request([*request.prompt, *request.generated, 9], 4, owner="a")
    engine.run(following)
    assert (following.cached or 0) >= 20 + count - 1
    assert following.generated == engine.alone(following.prompt, 4)
    engine.settled()


def test_a_cancelled_request_computes_no_further_token(engine: Engine) -> None:
    watched = engine.models["tiny"]
    request = engine.request(prompt_of(20), 100)

    def cancel(ids: list[list[int]]) -> None:
        request.cancelled = request.cancelled or len(request.generated) == 5

    watched.before = cancel
    engine.start(request)
    wait(request)
    assert len(request.generated) <= 6


def test_cancelled_right_after_it_joined(engine: Engine) -> None:
    """Its last prompt token is in the batch, and no token of it was given out yet."""
    watched = engine.models["tiny"]
    first, second = engine.request(prompt_of(20), 60), engine.request(prompt_of(30, seed=2), 20)

    def cancel(ids: list[list[int]]) -> None:
        if second.live is not None and second.live.length == 29:
            second.cancelled = second.cancelled or second.prompt[-1:] in ids

    watched.before = cancel
    engine.start(first)
    until(lambda: len(first.generated) >= 2)
    engine.start(second)
    assert wait(second).finish_reason == "cancelled" and second.generated == []
    assert wait(first).error is None
    assert first.generated == engine.alone(first.prompt, 60)
    again = engine.request([*second.prompt, 9], 4)
    engine.run(again)
    assert again.cached == 30
    assert again.generated == engine.alone(again.prompt, 4)
    engine.settled()


def test_a_cancelled_row_gets_nothing_from_one_that_joins(engine: Engine) -> None:
    """The second one's prefill ends in the very step that sees the first one's cancel."""
    watched, seen = engine.models["tiny"], []
    first, second = engine.request(prompt_of(20), 1000), engine.request(prompt_of(20, seed=2), 4)

    def cancel(ids: list[list[int]]) -> None:
        if len(ids[0]) == 8 and second.live is not None:
            first.cancelled = True
            seen.append(len(first.generated))

    engine.start(first)
    until(lambda: len(first.generated) >= 3)
    with engine.held():
        engine.core.runtime("tiny").rate = Rate()  # eight tokens at first, then the rest
        watched.before = cancel
        engine.start(second)
    assert wait(first).finish_reason == "cancelled"
    assert len(first.generated) <= seen[0] + 1
    assert wait(second).error is None
    assert second.generated == engine.alone(second.prompt, 4)
    engine.settled()


def test_cancelling_what_has_ended_is_harmless(engine: Engine) -> None:
    request = engine.request(prompt_of(20), 3)
    engine.run(request)
    request.cancelled = True
    assert engine.answer(prompt_of(20), 3) == request.generated
    assert [reason for _, reason in engine.ended] == ["length", "length"]


# --- unloading --------------------------------------------------------------------------------


def test_unloading_ends_what_runs_and_what_waits(engine: Engine) -> None:
    engine.core.lane("tiny").admission.rows = 2
    requests = [engine.request(prompt_of(20 + n, seed=n), 1000) for n in range(4)]
    start_together(engine, requests)
    until(lambda: len(requests[1].generated) > 2)
    engine.core.unload("tiny")
    for request in requests:
        assert isinstance(wait(request).error, ModelUnloaded)
    assert engine.core.store.spaces() == []


def test_a_request_that_was_planned_before_its_model_went_is_refused(engine: Engine) -> None:
    request = engine.request(prompt_of(20))
    engine.core.plan(request)
    engine.core.unload("tiny")
    with pytest.raises(ModelUnloaded):
        engine.core.submit(request)


def test_a_request_that_was_planned_before_its_model_was_replaced_is_refused(
    engine: Engine,
) -> None:
    request = engine.request(prompt_of(20))
    engine.core.plan(request)
    engine.install("tiny")
    with pytest.raises(ModelUnloaded):
        engine.core.submit(request)
    assert engine.answer(prompt_of(20)) == engine.alone(prompt_of(20), 8)


def test_an_option_out_of_range_never_reaches_the_queue(engine: Engine) -> None:
    with pytest.raises(InvalidOption):
        engine.request(prompt_of(20), options={"top_p": 2.0})
