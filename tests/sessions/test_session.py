"""Turns of a session: what comes back, what stays, and what goes wrong."""

from __future__ import annotations

import _thread
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from scripted import Gate, model_of

from mlxnb.errors import (
    ContextOverflow,
    InvalidOption,
    RequestFailed,
    SessionBusy,
    TemplateFailed,
    UnknownSession,
)
from mlxnb.records.turn import Turn
from mlxnb.sessions.delta import Delta
from mlxnb.sessions.local import LocalEngine

from .templates import RAISES
from .texts import NASTY

Say = Callable[..., str]


# --- send -------------------------------------------------------------------------------------


def test_a_turn_has_the_answer_and_counts_every_token(engine: LocalEngine, say: Say) -> None:
    say("Hello world")
    turn = engine.session().send("hi")
    assert (turn.text, turn.finish_reason) == ("Hello world", "stop")
    assert turn.output_tokens == len(turn.tokens)
    assert turn.prompt_tokens == turn.cached_tokens + turn.prefill_tokens
    assert str(turn) == "Hello world"


def test_answers_follow_each_other(engine: LocalEngine, say: Say) -> None:
    say("one", "two", "three")
    session = engine.session()
    assert [session.send("next").text for _ in range(3)] == ["one", "two", "three"]
    assert session.turns == 3
    assert [m["content"] for m in session.history if m["role"] == "assistant"] == [
        *("one", "two", "three")
    ]


@pytest.mark.parametrize("text", [*NASTY, "", " ", "{braces} $x\\n"])
def test_what_is_said_is_said_verbatim(engine: LocalEngine, say: Say, text: str) -> None:
    name = say("fine")
    session = engine.session(system=text)
    turn = session.send(text)
    assert turn.text == "fine"
    assert session.history[:2] == [
        {"role": "system", "content": text},
        {"role": "user", "content": text},
    ]
    prompt = engine.core.runtime(name).tokenizer.decode(list(engine.ledger[turn.id].prompt))
    assert f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" in prompt


def test_history_is_a_copy(engine: LocalEngine, say: Say) -> None:
    say("fine")
    session = engine.session()
    session.send("hi")
    session.history[0]["content"] = "else"
    session.history.clear()
    assert session.history[0]["content"] == "hi"


@pytest.mark.parametrize("text", [None, 5, b"hi", ["hi"]])
def test_a_message_is_a_string(engine: LocalEngine, say: Say, text: Any) -> None:
    say("fine")
    with pytest.raises(InvalidOption, match="a message is a string"):
        engine.session().send(text)


def test_half_a_surrogate_pair_is_no_text(engine: LocalEngine, say: Say) -> None:
    say("fine")
    session = engine.session()
    with pytest.raises(InvalidOption, match="surrogate"):
        session.send("\ud83d")
    assert session.send("hi").text == "fine"


def test_an_empty_system_text_is_a_system_text(engine: LocalEngine, say: Say) -> None:
    say("fine")
    assert engine.session(system="").history == [{"role": "system", "content": ""}]


# --- limits -----------------------------------------------------------------------------------


def test_a_prompt_over_the_context_touches_nothing(engine: LocalEngine, say: Say) -> None:
    name = say("fine", max_position_embeddings=64)
    session = engine.session()
    session.send("hi")
    before, fed = session.tokens, model_of(engine, name).fed
    with pytest.raises(ContextOverflow) as caught:
        session.send("many words " * 30)
    assert caught.value.limit == 64
    assert caught.value.tokens > 64
    assert (session.tokens, session.turns) == (before, 1)
    assert len(engine.turns()) == 1
    assert model_of(engine, name).fed == fed
    assert session.send("hi").finish_reason == "stop"


def test_the_output_is_clamped_to_what_the_context_leaves(engine: LocalEngine, say: Say) -> None:
    say("word " * 100, max_position_embeddings=64)
    turn = engine.session().send("hi", max_tokens=10_000)
    assert turn.finish_reason == "length"
    assert turn.prompt_tokens + turn.output_tokens == 64


def test_a_model_that_names_no_limit_has_none(engine: LocalEngine, say: Say) -> None:
    say("word " * 30, max_position_embeddings=None)
    assert engine.session().send("hi " * 50).finish_reason == "stop"


def test_a_template_that_refuses_touches_nothing(engine: LocalEngine, say: Say) -> None:
    say("fine", template=RAISES)
    session = engine.session()
    with pytest.raises(TemplateFailed, match="never liked"):
        session.send("hi")
    assert not session.answering
    assert len(engine.turns()) == 0


# --- one turn at a time -----------------------------------------------------------------------


def test_a_session_does_one_turn_at_a_time(engine: LocalEngine, say: Say) -> None:
    name = say("fine")
    session = engine.session(name="s")
    with Gate(model_of(engine, name)) as gate:
        reply = session.reply("hi")
        gate.wait()
        for act in (lambda: session.send("x"), session.reset, lambda: engine.remove_session("s")):
            with pytest.raises(SessionBusy, match="'s' is answering"):
                act()
        assert session.answering
    assert reply.result().text == "fine"
    assert not session.answering
    assert session.send("again").text == "fine"


def test_a_running_turn_is_no_part_of_the_history(engine: LocalEngine, say: Say) -> None:
    name = say("one", "two")
    session = engine.session()
    session.send("hi")
    with Gate(model_of(engine, name), calls=2) as gate:
        reply = session.reply("again")
        gate.wait()
        assert len(session.history) == 2
        with pytest.raises(SessionBusy):
            session.rewind()
    assert reply.result().text == "two"
    assert len(session.history) == 4


def test_a_removed_session_is_gone(engine: LocalEngine, say: Say) -> None:
    say("fine")
    session = engine.session(name="s")
    engine.remove_session("s")
    with pytest.raises(UnknownSession, match="was removed"):
        session.send("hi")
    again = engine.session(name="s")
    assert again is not session
    assert again.send("hi").text == "fine"


# --- interrupted and failed -------------------------------------------------------------------


def test_a_cancelled_turn_leaves_the_history_and_its_partial_answer(
    engine: LocalEngine, say: Say
) -> None:
    name = say("one two three four five", "six")
    session = engine.session(system="Be brief.")
    before = session.history
    with Gate(model_of(engine, name), calls=6) as gate:
        reply = session.reply("hi")
        gate.wait()
        reply.cancel()
    turn = reply.result()
    assert turn.finish_reason == "cancelled"
    assert 0 < len(turn.text) < len("one two three four five")
    assert "one two three four five".startswith(turn.text)
    assert session.last is turn
    assert (session.history, session.turns, session.tokens) == (before, 0, [])
    assert session.send("hi").text == "one two three four five"


def test_a_turn_is_stopped_and_waited_for(engine: LocalEngine, say: Say) -> None:
    say("word " * 500)
    session = engine.session()
    reply = session.reply("hi")
    turn = reply.stop()
    assert turn.finish_reason == "cancelled"
    assert reply.turn is turn
    assert reply.outcome() is turn
    assert not session.answering


def test_an_interrupt_stops_the_turn_and_is_raised(engine: LocalEngine, say: Say) -> None:
    name = say("one two three four five " * 20)
    session = engine.session()
    model, calls = model_of(engine, name), iter(range(1000))
    model.on_call = lambda: _thread.interrupt_main() if next(calls) == 7 else None
    with pytest.raises(KeyboardInterrupt):
        session.send("hi")
    assert session.last is not None
    assert session.last.finish_reason == "cancelled"
    assert session.last.text.startswith("one")
    assert session.turns == 0
    model.on_call = lambda: None
    assert session.send("hi").text.startswith("one two three")


def test_a_failed_turn_names_its_cause_and_carries_what_was_there(
    engine: LocalEngine, say: Say
) -> None:
    name = say("one two three")
    session = engine.session()
    model, calls = model_of(engine, name), iter(range(1000))

    def fail() -> None:
        if next(calls) == 6:
            raise ZeroDivisionError("of ours")

    model.on_call = fail
    with pytest.raises(RequestFailed, match="ZeroDivisionError: of ours") as caught:
        session.send("hi")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    turn = caught.value.turn
    assert isinstance(turn, Turn)
    assert turn is session.last
    assert (turn.finish_reason, turn.error) == ("error", "ZeroDivisionError: of ours")
    assert "one two three".startswith(turn.text)
    assert session.turns == 0
    assert session.send("hi").text == "one two three"


def test_a_reply_that_nobody_follows_settles_all_the_same(engine: LocalEngine, say: Say) -> None:
    say("one", "two")
    session = engine.session()
    session.reply("hi")
    while session.answering:
        threading.Event().wait(0.01)
    assert session.send("and").text == "two"


def test_two_threads_may_follow_one_reply(engine: LocalEngine, say: Say) -> None:
    name = say("one two three")
    with Gate(model_of(engine, name), calls=1):
        reply = engine.session().reply("hi")
        found: list[Turn] = []
        threads = [threading.Thread(target=lambda: found.append(reply.outcome())) for _ in "ab"]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [reply.turn, reply.turn]


def test_many_threads_speak_at_once(engine: LocalEngine, say: Say) -> None:
    say("one", "two", "three")
    heard: dict[str, list[str]] = {}

    def talk() -> None:
        session = engine.session()
        heard[session.name] = [session.send(f"{session.name} says").text for _ in range(3)]

    threads = [threading.Thread(target=talk) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert list(heard.values()) == [["one", "two", "three"]] * 8
    assert engine.turns().finish_reason.tolist() == ["stop"] * 24


# --- stream -----------------------------------------------------------------------------------


def test_deltas_are_strings_that_make_up_the_text(engine: LocalEngine, say: Say) -> None:
    say("One two, \U0001f600 naïve 漢字.\n\nEnd  ")
    pieces = list(engine.session().stream("hi"))
    turn = pieces.pop()
    assert isinstance(turn, Turn)
    assert all(isinstance(piece, Delta) for piece in pieces)
    assert "".join(map(str, pieces)) == turn.text
    assert len(pieces) > 5
    assert not any("\ufffd" in str(piece) for piece in pieces)


def test_a_delta_of_reasoning_is_an_empty_string_that_carries_it(
    engine: LocalEngine, say: Say
) -> None:
    say("<think>hm, yes</think>fine")
    *pieces, turn = engine.session().stream("hi")
    assert isinstance(turn, Turn)
    assert (turn.text, turn.reasoning) == ("fine", "hm, yes")
    deltas = [piece for piece in pieces if isinstance(piece, Delta)]
    assert "".join(delta.reasoning for delta in deltas) == "hm, yes"
    assert "".join(deltas) == "".join(delta.text for delta in deltas) == "fine"
    assert {delta.kind for delta in deltas} == {"reasoning", "text"}


def test_a_stream_gives_pieces_before_the_end(engine: LocalEngine, say: Say) -> None:
    name = say("one two three")
    with Gate(model_of(engine, name), calls=8) as gate:
        stream = engine.session().stream("hi")
        assert next(stream) == "one"
        gate.wait()
    assert isinstance(list(stream)[-1], Turn)


def test_a_closed_stream_stops_the_answer(engine: LocalEngine, say: Say) -> None:
    say("word " * 500)
    session = engine.session()
    stream = session.stream("hi")
    next(stream)
    stream.close()
    assert session.last is not None
    assert session.last.finish_reason == "cancelled"
    assert not session.answering
    assert list(stream) == []


def test_a_stream_that_is_left_stops_the_answer(engine: LocalEngine, say: Say) -> None:
    say("word " * 500)
    session = engine.session()
    for _ in session.stream("hi"):
        break
    gc.collect()
    assert session.send("hi", max_tokens=2).finish_reason == "length"


def test_a_stream_that_nobody_looks_at_leaves_the_session_free(
    engine: LocalEngine, say: Say
) -> None:
    say("word " * 500)
    session = engine.session()
    session.stream("hi")
    gc.collect()
    assert session.send("hi", max_tokens=2).finish_reason == "length"


def test_a_stream_that_was_cancelled_ends_in_its_partial_turn(
    engine: LocalEngine, say: Say
) -> None:
    say("word " * 500)
    stream = engine.session().stream("hi")
    next(stream)
    stream.cancel()
    turn = list(stream)[-1]
    assert isinstance(turn, Turn)
    assert turn.finish_reason == "cancelled"


def test_a_failed_stream_raises(engine: LocalEngine, say: Say) -> None:
    name = say("one two three")
    calls = iter(range(1000))
    model_of(engine, name).on_call = lambda: 1 // (5 - next(calls))
    with pytest.raises(RequestFailed, match="ZeroDivisionError"):
        list(engine.session().stream("hi"))


def test_a_mistake_is_raised_when_the_stream_is_asked_for(engine: LocalEngine, say: Say) -> None:
    say("fine")
    with pytest.raises(InvalidOption, match="temperature"):
        engine.session().stream("hi", temperature=-1)


# --- several answers --------------------------------------------------------------------------


def test_n_answers_are_choices_and_the_first_is_continued(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(temperature=1.5, seed=7, max_tokens=12)
    turn = session.send("hi", n=3)
    assert turn.choices[0] is turn
    assert len({tuple(choice.tokens) for choice in turn.choices}) == 3
    assert [choice.usage.prompt_tokens for choice in turn.choices] == [turn.prompt_tokens] * 3
    rows = engine.turns()
    assert rows.turn_id.tolist() == [choice.id for choice in turn.choices]
    assert session.history[-1]["content"] == turn.text
    after = session.send("more", max_tokens=2)
    prompt = list(engine.ledger[after.id].prompt)
    assert (
        prompt[: len(session.tokens)][turn.prompt_tokens :][: len(turn.tokens) - 1]
        == (turn.tokens[:-1])
    )
    assert tiny == turn.model


def test_each_answer_is_what_its_seed_gives_alone(engine: LocalEngine, tiny: str) -> None:
    together = engine.session(tiny, temperature=1.0, max_tokens=6).send("hi", n=3, seed=40)
    for number, choice in enumerate(together.choices):
        alone = engine.session(tiny, temperature=1.0, max_tokens=6).send("hi", seed=40 + number)
        assert choice.tokens == alone.tokens


def test_n_answers_compute_their_prompt_once(engine: LocalEngine, say: Say) -> None:
    name = say("one two three")
    turn = engine.session().send("many words " * 20, n=4)
    assert sum(choice.prefill_tokens for choice in turn.choices) < 2 * turn.prompt_tokens
    assert model_of(engine, name).fed < 2 * turn.prompt_tokens + 4 * turn.output_tokens


def test_stopping_stops_every_answer(engine: LocalEngine, say: Say) -> None:
    say("word " * 500)
    turn = engine.session().reply("hi", n=3).stop()
    assert [choice.finish_reason for choice in turn.choices] == ["cancelled"] * 3
    assert len(engine.turns()) == 3
