"""One answer as chunks, and as a completion (W9, W26, W28, W40, W41)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxnb.engine.events import Prefill
from mlxnb.errors import EngineDied, ModelUnloaded
from mlxnb.wire.chat import encode
from wire.answers import USAGE, FakeAnswer, arguments, call, start, text, thought, turn
from wire.messages.test_fuzz import OPTIONS, RAW
from wire.openai_chat import check_completion, check_stream, completion_of, decoded
from wire.played import CALL, TOOLS, play

from .bodies import machine, run

BEGIN = Prefill(USAGE.cached_tokens, USAGE.prompt_tokens, USAGE.cached_tokens)
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def streamed(events: list[Any], ended: Any = None, **fields: Any) -> list[Any]:
    """What is sent, which the SDK and the order approve of."""
    sent = run(machine(**fields), [BEGIN, *events], ended or turn())
    check_stream(sent, usage="stream_options" in fields)
    return sent


def deltas(events: list[Any]) -> list[Any]:
    return [p["choices"][0]["delta"] for name, p in events if name == "chunk" and p["choices"]]


def plain(events: list[Any], ended: Any = None, **fields: Any) -> dict[str, Any]:
    """The completion that is answered, which the SDK approves of."""
    made = machine(**fields)
    run(made, [BEGIN, *events], ended or turn())
    check_completion(made.body())
    return made.body()


def message(events: list[Any], ended: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = plain(events, ended)["choices"][0]["message"]
    return found


def test_w9_the_asked_name_is_echoed() -> None:
    assert plain([text("hi")])["model"] == FakeAnswer.asked_model


def test_an_id_is_the_response_s_by_another_name() -> None:
    assert plain([])["id"] == "chatcmpl_" + FakeAnswer.response_id.removeprefix("resp_")


def test_the_deltas_of_a_text() -> None:
    assert deltas(streamed([text("Hel"), text("lo")])) == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]


def test_reasoning_is_apart_from_the_text() -> None:
    assert {"reasoning_content": "hm"} in deltas(streamed([thought("hm"), text("yes")]))
    found = message([thought("hm"), text("yes")])
    assert (found["reasoning_content"], found["content"]) == ("hm", "yes")


def test_an_answer_of_nothing_is_an_empty_text() -> None:
    assert message([])["content"] == ""


def test_calls_alone_have_no_text() -> None:
    assert message([call()], turn("tool_calls"))["content"] is None


PIECES = [start("look"), arguments('{"at": '), arguments('"sky"}'), call("look", {"at": "sky"})]


def test_arguments_are_streamed_as_they_come() -> None:
    sent = deltas(streamed(PIECES, turn("tool_calls")))
    assert sent[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": ""}
    said = [delta["tool_calls"][0]["function"]["arguments"] for delta in sent[2:4]]
    assert said == ['{"at": ', '"sky"}']


def test_w40_a_call_in_pieces_is_the_same_call() -> None:
    whole = message([call("look", {"at": "sky"})], turn("tool_calls"))
    assert message(PIECES, turn("tool_calls")) == whole


@pytest.mark.parametrize("many", [1, 2, 3])
def test_calls_have_an_index_each(many: int) -> None:
    sent = deltas(streamed([call(id=f"call_{n}") for n in range(many)], turn("tool_calls")))
    opened = [d["tool_calls"][0] for d in sent if "id" in (d.get("tool_calls") or [{}])[0]]
    assert [c["index"] for c in opened] == [*range(many)]


@pytest.mark.parametrize(
    ("events", "ended", "reason"),
    [
        ([text("a")], turn("stop"), "stop"),
        ([text("a")], turn("stop_sequence", stop_sequence="S"), "stop"),
        ([text("a")], turn("length"), "length"),
        ([call()], turn("tool_calls"), "tool_calls"),
        ([call()], turn("stop"), "tool_calls"),
        ([call()], turn("length"), "length"),
        (PIECES[:2], turn("length"), "length"),
    ],
)
def test_finish_reasons(events: Any, ended: Any, reason: str) -> None:
    assert plain(events, ended)["choices"][0]["finish_reason"] == reason
    streamed(events, ended)


# --- usage -----------------------------------------------------------------------------------


def test_usage_comes_last_where_it_is_asked_for() -> None:
    sent = streamed([text("hi")], **WITH_USAGE)
    assert [name for name, _ in sent[-2:]] == ["chunk", "done"]
    assert sent[-2][1]["usage"] == plain([text("hi")])["usage"]


def test_usage_is_not_streamed_unasked() -> None:
    assert not any("usage" in payload for _, payload in streamed([text("hi")], stream=True))


def test_w26_usage() -> None:
    usage = plain([text("hi")], timings=False)["usage"]
    assert usage == {
        "prompt_tokens": 20,
        "completion_tokens": 7,
        "total_tokens": 27,
        "prompt_tokens_details": {"cached_tokens": 12},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


def test_w28_timings_are_inside_usage() -> None:
    assert plain([text("hi")])["usage"]["prefill_input_tokens"] == 8


# --- silence, failure ------------------------------------------------------------------------


def test_w33_silence_is_broken_by_a_chunk_that_says_nothing() -> None:
    made = machine()
    sent = [*made.opening(), *made.quiet(), *made.feed(BEGIN), *made.quiet()]
    sent += [*made.feed(text("hi")), *made.finish(turn())]
    check_stream(sent)
    assert completion_of(sent)["choices"][0]["message"]["content"] == "hi"


ANSWER = [BEGIN, thought("hm"), text("yes"), *PIECES]


@pytest.mark.parametrize("point", range(len(ANSWER) + 1))
def test_w41_a_failure_is_the_last_event(point: int) -> None:
    made = machine()
    sent = made.opening() + [event for given in ANSWER[:point] for event in made.feed(given)]
    sent += made.fail(EngineDied("the engine's thread died"))
    check_stream(sent)
    assert sent[-1][0] == "error"
    assert [*made.fail(RuntimeError()), *made.finish(turn()), *made.quiet()] == []


@pytest.mark.parametrize("reason", ["error", "cancelled", None])
def test_w41_a_turn_that_did_not_end_well_is_an_error(reason: Any) -> None:
    sent = run(machine(FakeAnswer(error=ModelUnloaded("it was unloaded"))), ANSWER, turn(reason))
    check_stream(sent)
    assert "it was unloaded" in sent[-1][1]["error"]["message"]


def test_w41_nothing_follows_an_abort() -> None:
    made = machine()
    made.abort()
    assert [*made.feed(text("x")), *made.quiet(), *made.finish(turn())] == []


def test_w41_there_is_one_terminal_whatever_comes() -> None:
    made = machine()
    run(made, ANSWER, turn("tool_calls"))
    assert [*made.feed(text("x")), *made.fail(RuntimeError()), *made.finish(turn())] == []


# --- bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [turn(), turn("error")])
def test_bytes_are_data_lines_that_read_as_the_events(ended: Any) -> None:
    sent = streamed([text("é🙂\n\u2028")], ended)
    stream = b"".join(encode(name, payload) for name, payload in sent)
    assert b"event:" not in stream
    assert decoded(stream) == sent


def test_the_end_is_the_word_that_clients_wait_for() -> None:
    name, payload = streamed([])[-1]
    assert encode(name, payload) == b"data: [DONE]\n\n"


# --- W40 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "options", "content", "calls"),
    [
        ("Hello", {}, "Hello", 0),
        ("<think>hm</think>\n\nHello", {}, "Hello", 0),
        (f"Let me see.\n{CALL}", {"tools": TOOLS}, "Let me see.\n", 1),
        (f"{CALL}{CALL}", {"tools": TOOLS}, None, 2),
        ("one STOP two", {"stops": ["STOP"]}, "one ", 0),
    ],
)
def test_what_a_model_says_and_what_is_answered(
    raw: str, options: Any, content: str | None, calls: int
) -> None:
    played = play([raw], **options)
    found = message(played.pieces, played.turn)
    assert (found["content"], len(found.get("tool_calls", ()))) == (content, calls)


@settings(max_examples=1000, database=None)
@given(RAW, OPTIONS, st.integers(1, 9))
def test_w40_chunks_add_up_to_the_completion(
    fragments: list[str], options: dict[str, Any], size: int
) -> None:
    raw = "".join(fragments)
    played = play([raw[at : at + size] for at in range(0, len(raw), size)], **options)
    made = machine(**WITH_USAGE)
    sent = run(made, played.pieces, played.turn)
    check_stream(sent, usage=True)
    check_completion(made.body())
    assert added_up(sent) == seen(made.body())
    for cut in (fragments, [raw]):
        played, other = play(cut, **options), machine()
        run(other, played.pieces, played.turn)
        assert other.body() == made.body()


def seen(body: dict[str, Any]) -> dict[str, Any]:
    """What a client looks at."""
    (choice,) = body["choices"]
    found = choice["message"]
    return {
        "content": found.get("content") or "",
        "reasoning": found.get("reasoning_content", ""),
        "calls": [call["function"] for call in found.get("tool_calls") or ()],
        "reason": choice["finish_reason"],
        "usage": body["usage"],
    }


def added_up(events: list[Any]) -> dict[str, Any]:
    """The same of what the SDK has put together."""
    body = completion_of(events)
    calls = body["choices"][0]["message"].get("tool_calls") or ()
    for made in calls:
        made["function"] = {name: made["function"][name] for name in ("name", "arguments")}
    return json.loads(json.dumps(seen(body)))  # type: ignore[no-any-return]
