"""W29 to W33, W41, W56 and W57: engine events to Responses events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from mlxnb.engine.events import Done, Piece, Prefill
from mlxnb.errors import ContextOverflow, EngineDied, RequestFailed
from mlxnb.records.turn import FinishReason
from mlxnb.wire.responses import Machine, parse

from .answers import FakeAnswer, arguments, call, start, text, thought, turn
from .checks import Event, check_events, sdk_response

TOOLS = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch"},
]


def machine(**fields: Any) -> Machine:
    body = {"model": "m", "input": "hi", "tools": TOOLS, "reasoning": {"summary": "auto"}}
    return Machine(parse({**body, **fields}), FakeAnswer(), now=lambda: 5.0)


def stream(
    pieces: Iterable[Piece], reason: FinishReason = "stop", **fields: Any
) -> tuple[list[Event], dict[str, Any]]:
    """All events of an answer, judged, and its final response."""
    made = machine(**fields)
    events = made.opening()
    for piece in pieces:
        events += made.feed(piece)
    events += made.finish(turn(reason))
    final = check_events(events)
    assert final == made.body()
    sdk_response(final)
    return events, final


def names(events: Iterable[Event]) -> list[str]:
    return [name.removeprefix("response.") for name, _ in events]


def outline(final: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Type, status and text of each item."""
    return [(item["type"], item["status"], content(item)) for item in final["output"]]


def content(item: dict[str, Any]) -> str:
    for key in ("arguments", "input"):
        if key in item:
            return str(item[key])
    return "".join(part["text"] for part in item.get("content") or item["summary"])


# --- order -----------------------------------------------------------------------------------


def test_w29_text_alone() -> None:
    events, final = stream([text("Hel"), text("lo")])
    assert names(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert outline(final) == [("message", "completed", "Hello")]


def test_w30_reasoning_is_closed_before_the_message_opens() -> None:
    events, final = stream([thought("Hm"), thought("."), text("Yes")])
    assert names(events)[2:9] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    assert outline(final) == [("reasoning", "completed", "Hm."), ("message", "completed", "Yes")]


def test_w32_a_whole_call_has_a_delta_of_its_own() -> None:
    events, final = stream([call("f", {"x": "é"})], "tool_calls")
    assert names(events)[2:6] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert outline(final) == [("function_call", "completed", '{"x": "é"}')]


def test_w32_arguments_are_streamed_as_they_come() -> None:
    pieces = [start(), arguments('{"x"'), arguments(": 1}"), call("f", {"x": 1})]
    events, final = stream(pieces, "tool_calls")
    deltas = [p["delta"] for n, p in events if n == "response.function_call_arguments.delta"]
    assert deltas == ['{"x"', ": 1}"]
    assert outline(final) == [("function_call", "completed", '{"x": 1}')]


def test_w32_an_announced_call_without_pieces_comes_whole() -> None:
    _, final = stream([start(), call("f", {"x": 1})], "tool_calls")
    assert outline(final) == [("function_call", "completed", '{"x": 1}')]


def test_w32_two_calls_are_two_items() -> None:
    pieces = [call("f", {"x": 1}, "call_1"), call("f", {"x": 2}, "call_2")]
    _, final = stream(pieces, "tool_calls")
    assert [item["call_id"] for item in final["output"]] == ["call_1", "call_2"]


def test_c33_a_custom_tool_is_called_as_one() -> None:
    events, final = stream([call("patch", {"input": "*** Begin"})], "tool_calls")
    assert names(events)[2:6] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert outline(final) == [("custom_tool_call", "completed", "*** Begin")]
    assert "arguments" not in final["output"][0]


def test_c33_a_custom_tool_s_input_is_no_json_though_its_arguments_are() -> None:
    pieces = [
        start("patch"),
        arguments('{"input": "a\\n'),
        arguments('b"}'),
        call("patch", {"input": "a\nb"}),
    ]
    events, final = stream(pieces, "tool_calls")
    deltas = [p["delta"] for n, p in events if n == "response.custom_tool_call_input.delta"]
    assert deltas == ["a\n", "b"]
    assert outline(final) == [("custom_tool_call", "completed", "a\nb")]


def test_c33_an_empty_input_says_nothing_in_between() -> None:
    _, final = stream([call("patch", {"input": ""})], "tool_calls")
    assert outline(final) == [("custom_tool_call", "completed", "")]


def test_c33_arguments_of_another_shape_come_as_json() -> None:
    _, final = stream([call("patch", {"diff": 1})], "tool_calls")
    assert outline(final) == [("custom_tool_call", "completed", '{"diff": 1}')]


def test_reasoning_may_come_again() -> None:
    _, final = stream([thought("a"), text("b"), thought("c"), text("d")])
    assert [kind for kind, _, _ in outline(final)] == ["reasoning", "message"] * 2


def test_w17_reasoning_is_not_sent_where_no_summary_is_asked_for() -> None:
    _, final = stream([thought("secret"), text("b")], reasoning={"effort": "high"})
    assert outline(final) == [("message", "completed", "b")]


# --- blank text ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "reason", "expected"),
    [
        ([text("\n"), text(" x")], "stop", ["\n x"]),
        ([text("\n")], "stop", []),
        ([text("\n")], "length", []),
        ([text("\n")], "stop_sequence", ["\n"]),
        ([text("\n"), thought("t"), text("x")], "stop", ["t", "\nx"]),
        ([text("\n"), call()], "tool_calls", ["{}"]),
        ([text("a"), text("\n"), call()], "tool_calls", ["a\n", "{}"]),
        ([call(), text("\n"), call(id="call_2")], "tool_calls", ["{}", "{}"]),
        ([call(), text("\n"), text("b")], "stop", ["{}", "\nb"]),
    ],
)
def test_w35_blank_text(pieces: list[Piece], reason: FinishReason, expected: list[str]) -> None:
    _, final = stream(pieces, reason)
    assert [content(item) for item in final["output"]] == expected


# --- ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "last"),
    [
        ([thought("a")], ("reasoning", "incomplete", "a")),
        ([text("a")], ("message", "incomplete", "a")),
        ([start(), arguments('{"x')], ("function_call", "incomplete", '{"x')),
        ([start()], ("function_call", "incomplete", "")),
        ([start("patch"), arguments('{"x')], ("custom_tool_call", "incomplete", "")),
        (
            [start("patch"), arguments('{"input": "a\\')],
            ("custom_tool_call", "incomplete", "a"),
        ),
        ([call()], ("function_call", "completed", "{}")),
    ],
)
def test_w32_length_is_incomplete(pieces: list[Piece], last: tuple[str, str, str]) -> None:
    events, final = stream(pieces, "length")
    assert names(events)[-1] == "incomplete"
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert outline(final)[-1] == last


def test_w32_a_call_that_never_came_whole_is_incomplete() -> None:
    _, final = stream([start(), arguments('{"x'), text("a")], "length")
    assert outline(final)[0] == ("function_call", "incomplete", '{"x')


@pytest.mark.parametrize("count", range(6))
def test_w41_a_failure_at_any_point_closes_what_is_open(count: int) -> None:
    pieces = [thought("a"), text("b"), start(), arguments('{"x":'), arguments("1}"), call("f")]
    made = machine()
    events = made.opening()
    for piece in pieces[: count + 1]:
        events += made.feed(piece)
    events += made.fail(EngineDied("the engine's thread died"))
    final = check_events(events)
    assert final["status"] == "failed"
    assert final["error"] == {"code": "server_error", "message": "the engine's thread died"}
    assert final["incomplete_details"] is None
    assert final["usage"] is None


def test_w41_a_failure_before_anything_was_said() -> None:
    made = machine()
    final = check_events([*made.opening(), *made.fail(EngineDied("x"))])
    assert final["output"] == []


def test_w57_the_error_event_is_flat_and_nested() -> None:
    made = machine()
    events = made.opening() + made.fail(ContextOverflow(9, 8))
    name, payload = events[-2]
    assert name == "error"
    assert payload["code"] == payload["error"]["code"] == "context_length_exceeded"
    assert payload["message"] == payload["error"]["message"]
    assert payload["param"] is None


@pytest.mark.parametrize("reason", ["cancelled", "error"])
def test_w41_no_other_end_is_a_success(reason: FinishReason) -> None:
    made = machine()
    events = [*made.opening(), *made.feed(text("a")), *made.finish(turn(reason))]
    final = check_events(events)
    assert (final["status"], final["error"]["code"]) == ("failed", "server_error")
    assert outline(final) == [("message", "incomplete", "a")]


def test_w41_the_message_is_the_cause_s() -> None:
    failed = RequestFailed("outer")
    failed.__cause__ = EngineDied("inner")
    made = machine()
    made.opening()
    assert made.fail(failed)[-1][1]["response"]["error"]["message"] == "inner"


@pytest.mark.parametrize("end", ["finish", "fail", "abort"])
def test_w41_nothing_follows_the_end(end: str) -> None:
    made = machine()
    made.opening()
    made.feed(text("a"))
    if end == "finish":
        made.finish(turn())
    elif end == "fail":
        made.fail(EngineDied("x"))
    else:
        made.abort()
    after = (made.feed(text("b")), made.quiet(), made.finish(turn()), made.fail(EngineDied("x")))
    assert after == ([], [], [], [])


# --- the rest --------------------------------------------------------------------------------


def test_w33_silence_is_broken_by_a_repeated_in_progress() -> None:
    made = machine()
    events = made.opening() + made.quiet() + made.quiet()
    events += made.feed(text("a")) + made.quiet() + made.finish(turn())
    check_events(events)
    assert names(events)[:4] == ["created"] + ["in_progress"] * 3


def test_progress_and_the_end_of_the_engine_are_no_events() -> None:
    made = machine()
    made.opening()
    assert made.feed(Prefill(1, 2, 0)) == []
    assert made.feed(Done("stop")) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "claude-x"),
        ("status", "completed"),
        ("completed_at", 5.0),
        ("previous_response_id", "resp_1"),
        ("instructions", "Be brief."),
        ("metadata", {"a": "b", "retention_seconds": "60"}),
        ("parallel_tool_calls", True),
        ("tool_choice", "auto"),
        ("store", True),
        ("max_output_tokens", 9),
        ("text", {"format": {"type": "text"}, "verbosity": None}),
        ("reasoning", {"effort": None, "summary": "auto"}),
    ],
)
def test_w56_the_response_repeats_the_request(key: str, value: object) -> None:
    _, final = stream(
        [text("a")],
        previous_response_id="resp_1",
        instructions="Be brief.",
        metadata={"a": "b", "retention_seconds": 60},
        max_output_tokens=9,
    )
    assert final[key] == value


def test_w56_every_key_that_the_sdk_requires_is_there() -> None:
    from openai.types.responses import Response

    _, final = stream([text("a")])
    assert {name for name, f in Response.model_fields.items() if f.is_required()} <= final.keys()


def test_w56_tools_that_are_not_here_are_not_repeated() -> None:
    _, final = stream([text("a")], tools=[{"type": "web_search"}, TOOLS[0]])
    assert [tool["name"] for tool in final["tools"]] == ["f"]


def test_w56_item_ids_name_the_response() -> None:
    _, final = stream([thought("a"), text("b"), call()], "tool_calls")
    rest = final["id"].removeprefix("resp_")
    assert [item["id"] for item in final["output"]] == [
        f"rs_{rest}_0",
        f"msg_{rest}_1",
        f"fc_{rest}_2",
    ]


def test_w26_usage_is_that_of_the_turn() -> None:
    _, final = stream([text("a")])
    assert (final["usage"]["input_tokens"], final["usage"]["total_tokens"]) == (20, 27)


def test_w28_timings_are_inside_usage() -> None:
    _, final = stream([text("a")])
    assert final["usage"]["server_prefill_chunk_tokens"] == 512


@pytest.mark.parametrize("off", ["field", "header"])
def test_w28_timings_can_be_switched_off(off: str) -> None:
    request = parse({"model": "m", "input": "hi", "timings": off != "field"})
    made = Machine(request, FakeAnswer(), timed=off != "header")
    made.finish(turn())
    assert set(made.body()["usage"]) == {
        "input_tokens",
        "input_tokens_details",
        "output_tokens",
        "output_tokens_details",
        "total_tokens",
    }


class Missed:
    def __init__(self, reason: str | None) -> None:
        self.reason = reason
        self.tokens_lost = 7
        self.common_tokens = 5


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (None, {"type": "cache_hit"}),
        ("not_found", {"type": "comparison_response_not_found"}),
        ("evicted", {"type": "unavailable"}),
        (
            "history_edited",
            {
                "type": "cache_miss",
                "reason": "input_changed",
                "cache_missed_tokens": 7,
                "comparison_reusable_tokens": 5,
            },
        ),
    ],
)
def test_w60_diagnostics(reason: str | None, expected: dict[str, Any]) -> None:
    options = {"comparison_response_id": "resp_1"}
    request = parse({"model": "m", "input": "hi", "prompt_cache_options": options})
    made = Machine(request, FakeAnswer(), miss=Missed(reason))
    final = check_events([*made.opening(), *made.finish(turn())])
    assert final["prompt_cache_diagnostics"] == expected
    assert final["prompt_cache_options"]["comparison_response_id"] == "resp_1"


def test_w60_no_diagnostics_where_none_are_asked_for() -> None:
    _, final = stream([])
    assert final["prompt_cache_diagnostics"] is None
