"""W9, W27, W28, W33–W37, W41, W60: one answer as events, and as a message."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from mlxnb.engine.events import Done, Prefill
from mlxnb.errors import EngineDied, ModelUnloaded
from mlxnb.wire.messages import Machine, parse
from mlxnb.wire.messages.signature import reasoning_of
from wire.answers import USAGE, FakeAnswer, arguments, call, start, text, thought, turn
from wire.anthropic_stream import check_message, check_stream, message_of
from wire.played import CALL, TOOLS, play

from .bodies import body
from .streams import machine, run, shape

BEGIN = Prefill(USAGE.cached_tokens, USAGE.prompt_tokens, USAGE.cached_tokens)
OMITTED = {"thinking": {"type": "adaptive", "display": "omitted"}}


def streamed(events: list[Any], ended: Any = None, **fields: Any) -> list[Any]:
    """What is sent, which the SDK and the order approve of."""
    sent = run(machine(**fields), [BEGIN, *events], ended or turn())
    check_stream(sent)
    return sent


def plain(events: list[Any], ended: Any = None, **fields: Any) -> dict[str, Any]:
    """The message that is answered, which the SDK approves of."""
    made = machine(**fields)
    run(made, [BEGIN, *events], ended or turn())
    check_message(made.body())
    return made.body()


# --- the beginning ---------------------------------------------------------------------------


def test_w9_the_asked_name_is_echoed() -> None:
    assert plain([text("hi")])["model"] == FakeAnswer.asked_model


def test_a_message_is_its_response_by_another_name() -> None:
    response = FakeAnswer.response_id
    assert plain([text("hi")])["id"] == "msg_" + response.removeprefix("resp_")


def test_w34_the_order_of_a_plain_text() -> None:
    assert shape(streamed([text("Hel"), text("lo")])) == [
        "message_start",
        "block_start:text",
        "delta:text_delta",
        "delta:text_delta",
        "block_stop",
        "message_delta",
        "message_stop",
    ]


def test_w27_message_start_has_the_numbers_of_the_admission() -> None:
    made = machine(FakeAnswer(prompt_tokens=20, cached_tokens=3))
    ((_, payload),) = made.feed(BEGIN)
    usage = payload["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (8, 12)


def test_w27_message_delta_repeats_them() -> None:
    sent = streamed([text("hi")])
    first, last = sent[0][1]["message"]["usage"], sent[-2][1]["usage"]
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert [first[name] for name in names] == [last[name] for name in names] == [8, 12, 0]


def test_w33_silence_is_broken_before_the_message_starts() -> None:
    made = machine()
    sent = [*made.opening(), *made.quiet(), *made.quiet(), *made.feed(BEGIN), *made.quiet()]
    assert shape(sent) == ["ping", "ping", "message_start", "ping"]
    check_stream(sent + made.finish(turn()))


def test_w33_nothing_breaks_the_silence_after_the_end() -> None:
    made = machine()
    made.finish(turn())
    assert made.quiet() == []


def test_more_progress_is_not_told() -> None:
    assert streamed([Prefill(20, 20, 12), text("hi")]) == streamed([text("hi")])


def test_an_answer_of_nothing_is_whole() -> None:
    assert shape(streamed([])) == ["message_start", "message_delta", "message_stop"]
    assert plain([])["content"] == []


# --- thinking --------------------------------------------------------------------------------


def test_w34_thinking_ends_with_a_signature_before_text() -> None:
    assert shape(streamed([thought("hm"), thought("m"), text("yes")]))[1:6] == [
        "block_start:thinking",
        "delta:thinking_delta",
        "delta:thinking_delta",
        "delta:signature_delta",
        "block_stop",
    ]


def test_w17_thinking_that_is_omitted_is_in_its_signature_alone() -> None:
    sent = streamed([thought("secret plan"), text("yes")], **OMITTED)
    assert "secret" not in json.dumps(sent)
    (block, _) = plain([thought("secret plan"), text("yes")], **OMITTED)["content"]
    assert reasoning_of(block["thinking"], block["signature"]) == "secret plan"


def test_thinking_that_is_all_is_closed() -> None:
    assert shape(streamed([thought("hm")], turn("length")))[-3:] == [
        "block_stop",
        "message_delta",
        "message_stop",
    ]


def test_thinking_after_text_is_a_block_of_its_own() -> None:
    content = plain([text("a"), thought("hm"), text("b")])["content"]
    assert [block["type"] for block in content] == ["text", "thinking", "text"]


# --- calls -----------------------------------------------------------------------------------


def test_w34_a_call_opens_empty_and_its_arguments_follow() -> None:
    sent = streamed([call("look", {"at": "sky"})], turn("tool_calls"))
    assert sent[1][1]["content_block"] == {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "look",
        "input": {},
    }
    assert json.loads(sent[2][1]["delta"]["partial_json"]) == {"at": "sky"}


def test_a_call_without_arguments_says_so() -> None:
    sent = streamed([call("look", {})], turn("tool_calls"))
    assert sent[2][1]["delta"]["partial_json"] == "{}"


PIECES = [start("look"), arguments('{"at": '), arguments('"sky"}'), call("look", {"at": "sky"})]


def test_w32_arguments_are_streamed_as_they_come() -> None:
    sent = streamed(PIECES, turn("tool_calls"))
    deltas = [p["delta"]["partial_json"] for name, p in sent if name == "content_block_delta"]
    assert deltas == ['{"at": ', '"sky"}']


def test_w40_a_call_in_pieces_is_the_same_call() -> None:
    whole = plain([call("look", {"at": "sky"})], turn("tool_calls"))
    assert plain(PIECES, turn("tool_calls"))["content"] == whole["content"]


@pytest.mark.parametrize("many", [1, 2, 3])
def test_calls_have_an_index_and_an_id_each(many: int) -> None:
    sent = streamed([call(id=f"call_{n}") for n in range(many)], turn("tool_calls"))
    starts = [p for name, p in sent if name == "content_block_start"]
    assert [p["index"] for p in starts] == [*range(many)]
    assert [p["content_block"]["id"] for p in starts] == [f"toolu_{n}" for n in range(many)]


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ([], {}),
        (['{"at'], {}),
        (['{"at": "sk'], {}),
        (['{"at": "sky", "n": 1'], {"at": "sky"}),
        (['{"at": ', '"sky"}'], {"at": "sky"}),
    ],
)
def test_w40_a_call_that_is_cut_off_reads_as_the_sdk_reads_it(said: Any, read: Any) -> None:
    events = [start("look"), *map(arguments, said)]
    content = plain(events, turn("length"))["content"]
    assert content == message_of(streamed(events, turn("length")))["content"]
    assert content[0]["input"].items() <= {"at": "sky", "n": 1}.items()
    assert read.items() <= content[0]["input"].items()


# --- blank text, stops -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "reason", "expected"),
    [
        ([text(" "), text("\n"), text("hi ")], "stop", [" \nhi "]),
        ([text(" \n")], "stop", []),
        ([text(" \n")], "length", []),
        ([text("\n"), call()], "tool_calls", []),
        ([text("hi"), call(), text("\n")], "tool_calls", ["hi"]),
        ([text("hi"), text("\n\n"), call()], "tool_calls", ["hi\n\n"]),
        ([call(), text("\n"), text("so")], "tool_calls", ["\nso"]),
    ],
)
def test_w35_blank_text(events: Any, reason: Any, expected: list[str]) -> None:
    blocks = plain(events, turn(reason))["content"]
    assert [block["text"] for block in blocks if block["type"] == "text"] == expected
    streamed(events, turn(reason))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], [""]),
        ([thought("hm")], [""]),
        ([text(" \n")], [" \n"]),
        ([text("hi")], ["hi"]),
        ([text("hi"), text("\n")], ["hi\n"]),
        ([thought("hm"), text("\n")], ["\n"]),
    ],
)
def test_w36_a_matched_turn_has_a_text_block(events: Any, expected: list[str]) -> None:
    ended = turn("stop_sequence", stop_sequence="STOP")
    blocks = plain(events, ended)["content"]
    assert [block["text"] for block in blocks if block["type"] == "text"] == expected
    streamed(events, ended)


@pytest.mark.parametrize(
    ("events", "ended", "reason"),
    [
        ([text("a")], turn("stop"), "end_turn"),
        ([text("a")], turn("length"), "max_tokens"),
        ([text("a")], turn("stop_sequence", stop_sequence="S"), "stop_sequence"),
        ([text("a")], turn("length", stop_sequence="S"), "stop_sequence"),
        ([call()], turn("tool_calls"), "tool_use"),
        ([call()], turn("stop"), "tool_use"),
        ([call()], turn("length"), "max_tokens"),
    ],
)
def test_w36_which_reason_comes_first(events: Any, ended: Any, reason: str) -> None:
    assert plain(events, ended)["stop_reason"] == reason


def test_w36_the_matched_string_is_named() -> None:
    ended = turn("stop_sequence", stop_sequence="STOP")
    assert plain([text("a")], ended)["stop_sequence"] == "STOP"


# --- with the real pieces of an answer -------------------------------------------------------


def content_of(raw: str, **options: Any) -> list[tuple[str, Any]]:
    played = play([raw], **options)
    made = machine()
    check_stream(run(made, played.pieces, played.turn))
    keys = {"text": "text", "thinking": "thinking", "tool_use": "input"}
    return [(b["type"], b[keys[b["type"]]]) for b in made.body()["content"]]


@pytest.mark.parametrize(
    ("raw", "options", "expected"),
    [
        ("Hello", {}, [("text", "Hello")]),
        ("<think>hm</think>\n\nHello", {}, [("thinking", "hm"), ("text", "Hello")]),
        ("hm</think>Hello", {"inside": True}, [("thinking", "hm"), ("text", "Hello")]),
        (
            f"Let me see.\n{CALL}",
            {"tools": TOOLS},
            [("text", "Let me see.\n"), ("tool_use", {"at": "sky"})],
        ),
        (f"\n\n{CALL}", {"tools": TOOLS}, [("tool_use", {"at": "sky"})]),
        (f"{CALL}\n{CALL}", {"tools": TOOLS}, [("tool_use", {"at": "sky"})] * 2),
        (
            "<tool_call>{broken</tool_call>",
            {"tools": TOOLS},
            [("text", "<tool_call>{broken</tool_call>")],
        ),
        ("one STOP two", {"stops": ["STOP"]}, [("text", "one ")]),
        ("STOP two", {"stops": ["STOP"]}, [("text", "")]),
        (f"STOP{CALL}", {"stops": ["STOP"], "tools": TOOLS}, [("text", "")]),
        (
            f"{CALL}STOP",
            {"stops": ["STOP"], "tools": TOOLS},
            [("tool_use", {"at": "sky"}), ("text", "STOP")],
        ),
    ],
)
def test_what_a_model_says_and_what_is_answered(raw: str, options: Any, expected: Any) -> None:
    assert content_of(raw, **options) == expected


def test_w37_markup_without_tools_is_text_without_its_tags() -> None:
    ((kind, said),) = content_of(CALL)
    assert kind == "text"
    assert "tool_call" not in said
    assert json.loads(said)["name"] == "look"


# --- failure ---------------------------------------------------------------------------------

ANSWER = [BEGIN, thought("hm"), text("yes"), start("look"), arguments('{"a": 1}')]
ANSWER += [call("look", {"a": 1})]


@pytest.mark.parametrize("point", range(len(ANSWER) + 1))
def test_w41_a_failure_closes_what_is_open_and_is_the_last(point: int) -> None:
    made = machine()
    sent = [event for given in ANSWER[:point] for event in made.feed(given)]
    sent += made.fail(EngineDied("the engine's thread died"))
    check_stream(sent)
    assert sent[-1][0] == "error"
    assert "message_stop" not in [name for name, _ in sent]


@pytest.mark.parametrize("point", range(len(ANSWER) + 1))
@pytest.mark.parametrize("reason", ["error", "cancelled", None])
def test_w41_a_turn_that_did_not_end_well_is_an_error(point: int, reason: Any) -> None:
    made = machine(FakeAnswer(error=ModelUnloaded("it was unloaded")))
    sent = run(made, ANSWER[:point], turn(reason))
    check_stream(sent)
    assert sent[-1][0] == "error"
    assert "it was unloaded" in sent[-1][1]["error"]["message"]


def test_w41_a_turn_that_was_cancelled_without_a_reason_is_an_error_too() -> None:
    sent = run(machine(), ANSWER, turn("cancelled"))
    assert sent[-1][1]["error"]["type"] == "api_error"


@pytest.mark.parametrize("point", range(len(ANSWER) + 1))
def test_w41_nothing_follows_an_abort(point: int) -> None:
    made = machine()
    for given in ANSWER[:point]:
        made.feed(given)
    made.abort()
    assert [*made.feed(text("x")), *made.quiet(), *made.finish(turn())] == []
    assert made.fail(RuntimeError()) == []


def test_w41_there_is_one_terminal_whatever_comes() -> None:
    made = machine()
    sent = run(made, ANSWER, turn("tool_calls"))
    again = [*made.feed(text("x")), *made.fail(RuntimeError()), *made.finish(turn())]
    assert again == []
    check_stream(sent)


def test_w41_an_error_after_a_failure_is_not_told() -> None:
    made = machine()
    assert made.fail(RuntimeError())
    assert [*made.fail(RuntimeError()), *made.finish(turn())] == []


def test_w58_an_error_in_the_stream_names_the_request() -> None:
    ((_, payload),) = machine().fail(EngineDied("the engine's thread died"))
    assert payload["request_id"] == "req_1"
    assert payload["error"] == {"type": "overloaded_error", "message": "the engine's thread died"}


def test_w44_a_fault_of_ours_is_told_by_its_kind_alone() -> None:
    ((_, payload),) = machine().fail(ValueError("the prompt was: my secret"))
    assert "secret" not in json.dumps(payload)


def test_a_message_that_has_not_ended_is_what_there_is_of_it() -> None:
    made = machine()
    for given in ANSWER[:3]:
        made.feed(given)
    body = made.body()
    assert body["stop_reason"] is None
    assert [block["type"] for block in body["content"]] == ["thinking"]


def test_the_engine_s_own_end_says_nothing() -> None:
    assert machine().feed(Done("stop")) == []


# --- usage, diagnostics ----------------------------------------------------------------------


def test_w28_timings_are_inside_usage() -> None:
    usage = plain([text("hi")])["usage"]
    assert usage["prefill_input_tokens"] + usage["cached_prefix_tokens"] == 20
    assert usage["server_prefill_chunk_tokens"] == 512


def test_w28_the_stream_and_the_message_have_the_same_ones() -> None:
    assert streamed([text("hi")])[-2][1]["usage"] == plain([text("hi")])["usage"]


def test_w28_they_can_be_switched_off() -> None:
    names = set(plain([text("hi")], timings=False)["usage"])
    assert names == {
        *("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
        *("output_tokens", "output_tokens_details"),
    }


def test_thinking_is_counted() -> None:
    details = plain([text("hi")])["usage"]["output_tokens_details"]
    assert details == {"thinking_tokens": USAGE.reasoning_tokens}


@dataclass
class Missed:
    reason: str | None
    tokens_lost: int = 7


def diagnosed(miss: Missed | None, **fields: Any) -> tuple[Any, Any]:
    """What message_start says, and what the message says."""
    made = Machine(parse(body(**fields)), FakeAnswer(), miss=miss)
    sent = run(made, [BEGIN, text("hi")], turn())
    check_stream(sent)
    check_message(made.body())
    nothing = "nothing"
    started = sent[0][1]["message"].get("diagnostics", nothing)
    return started, made.body().get("diagnostics", nothing)


ASKED = {"diagnostics": {"previous_message_id": "msg_abcdefgh_1"}}


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("system_changed", {"type": "system_changed", "cache_missed_input_tokens": 7}),
        ("system_volatile", {"type": "system_changed", "cache_missed_input_tokens": 7}),
        ("tools_changed", {"type": "tools_changed", "cache_missed_input_tokens": 7}),
        ("history_edited", {"type": "messages_changed", "cache_missed_input_tokens": 7}),
        ("template_rewrote", {"type": "messages_changed", "cache_missed_input_tokens": 7}),
        ("other_model", {"type": "model_changed", "cache_missed_input_tokens": 7}),
        ("evicted", {"type": "unavailable"}),
        ("not_found", {"type": "previous_message_not_found"}),
    ],
)
def test_w60_a_miss_in_the_vendor_s_words(reason: str, expected: Any) -> None:
    found = {"cache_miss_reason": expected}
    assert diagnosed(Missed(reason), **ASKED) == (found, found)


@pytest.mark.parametrize("miss", [None, Missed(None)])
def test_w60_where_nothing_was_missed_there_is_nothing_to_tell(miss: Missed | None) -> None:
    assert diagnosed(miss, **ASKED) == (None, None)


def test_w60_on_a_first_turn_it_is_null() -> None:
    assert diagnosed(None, diagnostics={"previous_message_id": None}) == (None, None)


def test_w60_who_does_not_ask_is_not_told() -> None:
    assert diagnosed(Missed("evicted")) == ("nothing", "nothing")
