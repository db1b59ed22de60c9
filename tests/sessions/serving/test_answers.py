"""Answers from their beginning to their end: followed, cancelled, failed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from scripted import Gate, model_of

from mlxnb.engine.events import Done, Event
from mlxnb.engine.sampling import Sampling
from mlxnb.errors import (
    ContextOverflow,
    EngineDied,
    InvalidOption,
    ModelUnloaded,
    QueueFull,
    TemplateFailed,
    UnknownResponse,
)
from mlxnb.sessions.ask import Ask, ToolChoice
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.limits import Limits

from .world import HOST, World

Talker = Callable[..., str]


def test_an_answer_is_text_and_a_row(world: World, talker: Talker) -> None:
    talker("One.")
    following = world.begin("a", source="messages")
    turn = following.wait()
    record = following.answer.record
    assert following.text == turn.text == "One."
    assert (record.source, record.session, record.finish_reason) == ("messages", None, "stop")
    assert following.answer.response_id.startswith(f"resp_{HOST}_")


def test_a_stored_answer_names_its_row(world: World, talker: Talker) -> None:
    talker("One.")
    answer = world.ask("a", store=True, caller="ada")
    assert (answer.record.session, answer.record.caller) == (answer.response_id, "ada")


def test_phases_add_up(world: World, talker: Talker) -> None:
    """W28"""
    talker("One.", loaded=False)
    timing = world.ask("a").record.timing
    phases = (
        timing.pre_inference_s,
        timing.resolve_s,
        timing.load_wait_s,
        timing.queue_s,
        timing.prefill_s,
        timing.decode_s,
    )
    assert sum(phases) == pytest.approx(timing.total_s, abs=1e-3)
    assert timing.load_owner and timing.resolve_s > 0


def test_events_come_to_all_that_follow_and_done_comes_last_and_once(
    world: World, talker: Talker
) -> None:
    talker("One of several words.")
    first = world.begin("a")
    first.wait()
    late: list[Event] = []
    first.answer.follow(late.append)
    assert late == first.events
    assert [isinstance(event, Done) for event in late].count(True) == 1
    assert isinstance(late[-1], Done)


def test_the_turn_is_there_when_done_comes(world: World, talker: Talker) -> None:
    talker("One.")
    seen: list[Any] = []
    following = world.begin("a")
    following.answer.follow(
        lambda event: seen.append(following.answer.turn) if isinstance(event, Done) else None
    )
    assert following.wait() is seen[0]


def test_a_listener_that_raises_harms_nobody(world: World, talker: Talker) -> None:
    talker("One.")

    def fail(event: Event) -> None:
        raise ValueError("no")

    following = world.begin("a")
    following.answer.follow(fail)
    assert following.wait().text == "One."
    assert world.ask("b").turn is not None


# --- before anything is touched ---------------------------------------------------------------


def test_a_prompt_is_counted_as_it_will_be(world: World, talker: Talker) -> None:
    """W14, W51"""
    talker("One.")
    answer = world.ask("How many?", system="Be.")
    asked = Ask(model="talker", messages=answer.ask.messages, source="messages", system="Be.")
    assert world.service.count(asked) == answer.prompt_tokens == len(answer.request.prompt)


@pytest.mark.parametrize("loaded", [True, False])
def test_a_prompt_that_does_not_fit_costs_nothing(
    world: World, talker: Talker, engine: LocalEngine, loaded: bool
) -> None:
    """W13, W14"""
    talker("One.", max_position_embeddings=24, loaded=loaded)
    with pytest.raises(ContextOverflow):
        world.begin("far too long for this one, which has but a small window")
    assert len(engine.ledger) == 0
    assert bool(engine.core.names()) is loaded


def test_the_output_is_clamped_to_what_is_left(world: World, talker: Talker) -> None:
    """W14"""
    talker("One.", max_position_embeddings=40)
    answer = world.ask("a", sampling=Sampling(max_tokens=1000))
    assert answer.max_tokens == 40 - answer.prompt_tokens


def test_an_output_cap_holds_whatever_is_asked_for(world: World, talker: Talker) -> None:
    """W14"""
    world.limits = Limits(output_tokens={"talk*": 3})
    talker("A long answer of many words.")
    for sampling in (Sampling(), Sampling(max_tokens=100)):
        answer = world.ask("a", sampling=sampling)
        assert answer.turn is not None
        assert (answer.max_tokens, answer.turn.finish_reason) == (3, "length")


def test_without_a_limit_an_answer_may_fill_the_window(world: World, talker: Talker) -> None:
    talker("One.", max_position_embeddings=2000)
    answer = world.ask("a")
    assert answer.max_tokens == 2000 - answer.prompt_tokens


def test_a_template_that_refuses_is_told(world: World, talker: Talker, engine: LocalEngine) -> None:
    talker("One.", template="{{ raise_exception('no such role') }}", loaded=False)
    with pytest.raises(TemplateFailed, match="no such role"):
        world.begin("a")
    assert engine.core.names() == []


@pytest.mark.parametrize(
    "options",
    [
        {"schema": '{"type": "nonsense"}'},
        {"tool_choice": ToolChoice("required")},
        {"tool_choice": ToolChoice(names=("absent",))},
        {"sampling": Sampling(n=2)},
        {"sampling": Sampling(logit_bias={10**6: 1.0})},
    ],
)
def test_what_cannot_be_had_is_refused(
    world: World, talker: Talker, options: dict[str, Any]
) -> None:
    talker("One.")
    with pytest.raises(InvalidOption):
        world.begin("a", **options)


def test_over_the_admission_limit_a_request_is_refused_at_once(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    """W45"""
    world.limits = Limits(waiting=0)
    talker("One.")
    with pytest.raises(QueueFull):
        world.begin("a")
    world.limits = Limits()
    world.restart()
    assert world.ask("b").turn is not None
    assert len(engine.ledger) == 1


# --- leaving ----------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [0, 3], ids=["prefill", "decode"])
def test_a_client_that_leaves_stops_its_work(
    world: World, talker: Talker, engine: LocalEngine, calls: int
) -> None:
    """W43, W41"""
    talker("A long answer of many words.")
    with Gate(model_of(engine, "talker"), calls) as gate:
        following = world.begin("a", store=True)
        gate.wait()
        following.answer.cancel()
    turn = following.wait()
    record = following.answer.record
    assert (turn.finish_reason, record.error) == ("cancelled", "client_abort")
    assert engine.core.queues()["talker"] == (0, 0)


def test_a_client_that_leaves_the_queue_is_not_run(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    talker("One.")
    with Gate(model_of(engine, "talker")) as gate:
        first = world.begin("a")
        gate.wait()
        second = world.begin("b")
        second.answer.cancel()
    assert first.wait().text == "One."
    turn = second.wait()
    assert (turn.finish_reason, turn.output_tokens) == ("cancelled", 0)


def test_a_cancel_after_the_end_changes_nothing(world: World, talker: Talker) -> None:
    talker("One.")
    answer = world.ask("a", store=True)
    answer.cancel()
    assert answer.turn is not None and answer.turn.finish_reason == "stop"
    assert world.service.chain(answer.response_id, "").messages


def test_an_answer_is_cancelled_by_its_id_and_caller(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    """W65"""
    talker("A long answer of many words.")
    with Gate(model_of(engine, "talker"), 2) as gate:
        following = world.begin("a", store=True, caller="ada")
        gate.wait()
        with pytest.raises(UnknownResponse):
            world.service.cancel(following.answer.response_id, "bob")
        assert world.service.cancel(following.answer.response_id, "ada")
    assert following.wait().finish_reason == "cancelled"


# --- failing ----------------------------------------------------------------------------------


def failing(*_: Any) -> Any:
    raise ValueError("a fault in the model")


def test_a_fault_of_the_model_is_told_apart(
    world: World, talker: Talker, engine: LocalEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """W41, W44"""
    talker("One.")
    model_of(engine, "talker").on_call = failing
    with caplog.at_level(logging.DEBUG, "mlxnb"):
        following = world.begin("a secret of mine", store=True)
        turn = following.wait()
    record = following.answer.record
    assert turn.finish_reason == "error"
    assert record.error is not None and record.error.startswith("finish_reason_error: ValueError")
    assert isinstance(following.answer.error, ValueError)
    assert "secret" not in caplog.text


def test_a_model_that_is_gone_ends_its_answers(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    """W47"""
    talker("A long answer of many words.")
    with Gate(model_of(engine, "talker"), 2) as gate:
        following = world.begin("a")
        gate.wait()
        unloading = threading.Thread(target=engine.unload, args=("talker",))
        unloading.start()
    unloading.join()
    following.wait()
    assert isinstance(following.answer.error, ModelUnloaded)
    assert (following.answer.record.error or "").startswith("stream_exhausted: ModelUnloaded")


def test_an_engine_that_died_ends_its_answers_and_serves_the_next(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    """C20, W49: nobody has to ask."""
    talker("One.")

    def die() -> None:
        raise SystemExit

    model_of(engine, "talker").on_call = die
    following = world.begin("a")
    following.wait()
    assert isinstance(following.answer.error, EngineDied)
    assert (following.answer.record.error or "").startswith("stream_exhausted: EngineDied")
    assert world.ask("b").turn is not None
    assert world.service.health().restarts == 1


def test_what_failed_is_not_filed(world: World, talker: Talker, engine: LocalEngine) -> None:
    """W23, W41"""
    talker("One.")
    model_of(engine, "talker").on_call = failing
    answer = world.ask("a", store=True)
    with pytest.raises(UnknownResponse):
        world.service.chain(answer.response_id, "")
