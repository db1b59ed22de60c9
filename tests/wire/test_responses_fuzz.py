"""Any events, any cutting, any body: valid sequences, the same content, and nothing but 400."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mlxnb.engine.events import Piece, Prefill
from mlxnb.errors import EngineDied
from mlxnb.records.turn import FinishReason, ToolCall
from mlxnb.text.answer import AnswerMachine
from mlxnb.wire.errors import WireError
from mlxnb.wire.responses import Machine, ask, parse

from .answers import FakeAnswer, arguments, start, text, thought, turn
from .checks import Event, check_events, check_order, sdk_response

TOOLS = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}},
    {"type": "custom", "name": "g"},
]
REQUEST: dict[str, Any] = {
    "model": "m",
    "input": "hi",
    "tools": TOOLS,
    "reasoning": {"summary": "auto", "effort": "low"},
}
ENDS: tuple[FinishReason, ...] = ("stop", "stop_sequence", "length", "tool_calls")


def machine(**fields: Any) -> Machine:
    return Machine(parse({**REQUEST, **fields}), FakeAnswer(), now=lambda: 5.0)


# --- events ----------------------------------------------------------------------------------

words = st.text(st.sampled_from("ab \n\u2028é"), max_size=4)
ids = st.sampled_from(["call_1", "call_2", "call_3"])
tool_names = st.sampled_from(["f", "g"])
calls = st.builds(lambda i, n, x: ToolCall(i, n, {"input": x}), ids, tool_names, words)


def said(call: ToolCall, parts: list[str] | None, cut: bool) -> list[Piece]:
    """A call as it comes: whole, or announced and in pieces, or cut off in the midst of them."""
    if parts is None:
        return [Piece("tool_call", call=call)]
    announced = [start(call.name, call.id), *map(arguments, parts)]
    return announced if cut else [*announced, Piece("tool_call", call=call)]


parts = st.none() | st.lists(words, max_size=3)
runs = st.one_of(
    words.map(lambda x: [text(x)]),
    words.map(lambda x: [thought(x)]),
    st.builds(said, calls, parts, st.just(False)),
    st.sampled_from([["quiet"], [Prefill(1, 2, 0)]]),
)
ended = st.one_of(
    st.tuples(st.lists(runs, max_size=12), st.sampled_from(ENDS)),
    st.tuples(
        st.builds(
            lambda whole, last: [*whole, last],
            st.lists(runs, max_size=8),
            st.builds(said, calls, parts, st.booleans()),
        ),
        st.sampled_from(["length", "cancelled", "error", None]),
    ),
).map(lambda made: ([step for taken in made[0] for step in taken], made[1]))


def run(made: Machine, taken: list[Any], reason: FinishReason | None) -> list[Event]:
    events = made.opening()
    for step in taken:
        events += made.quiet() if step == "quiet" else made.feed(step)
    return events + (made.finish(turn(reason)) if reason else made.fail(EngineDied("x")))


@settings(max_examples=1500)
@given(ended, st.booleans())
def test_any_events_give_a_valid_sequence(
    given_: tuple[list[Any], FinishReason | None], told: bool
) -> None:
    made = machine() if told else machine(reasoning=None)
    events = run(made, *given_)
    assert check_order(events) == made.body()
    deltas = [p["delta"] for n, p in events if n == "response.output_text.delta"]
    shown = [part["text"] for i in made.body()["output"] for part in i.get("content", ())]
    assert "".join(deltas) == "".join(shown)


@settings(max_examples=100)
@given(ended)
def test_any_events_are_the_sdk_s(given_: tuple[list[Any], FinishReason | None]) -> None:
    made = machine()
    check_events(run(made, *given_))
    sdk_response(made.body())


# --- decoded text ----------------------------------------------------------------------------

fragments = st.lists(
    st.sampled_from(
        [
            "Hello",
            " ",
            "\n",
            "<think>",
            "</think>",
            "<tool_call>",
            "</tool_call>",
            '{"name": "f", "arguments": {"x": "é"}}',
            '{"name": "g", "arguments": {"input": "*** a"}}',
            '{"name": "f", "argu',
            "STOP",
            "ST",
            "<to",
            "🙂",
        ]
    ),
    max_size=10,
).map("".join)


def split(whole: str, cuts: list[int]) -> list[str]:
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    return [whole[a:b] for a, b in pairwise(places)]


def answered(whole: str, cuts: list[int], tools: bool, stops: list[str], cut: bool) -> Machine:
    """A whole answer through the text machine and the wire machine, judged."""
    counter = iter(range(1000))
    reading = AnswerMachine(
        think=("<think>", "</think>"),
        starts_in_reasoning=False,
        tool_tags=("<tool_call>", "</tool_call>"),
        parse_tool=lambda body, _: json.loads(body),
        tools=[{"function": {"name": n}} for n in "fg"] if tools else None,
        stops=stops,
        new_id=lambda: f"call_{next(counter)}",
    )
    made = machine()
    events = made.opening()
    for part in split(whole, cuts):
        for piece in reading.feed(part):
            events += made.feed(piece)
    for piece in reading.finish(cut):
        events += made.feed(piece)
    reason: FinishReason = "length" if cut else "tool_calls" if reading.tool_calls else "stop"
    if reading.stop_sequence is not None:
        reason = "stop_sequence"
    events += made.finish(turn(reason))
    assert check_order(events) == made.body()
    _check_kept(made.body(), reading)
    return made


def _check_kept(body: dict[str, Any], reading: AnswerMachine) -> None:
    """What was sent is what the turn keeps, blank text beside nothing else apart."""
    shown = [part["text"] for item in body["output"] for part in item.get("content", ())]
    assert "".join(shown).split() == reading.text.split()
    assert not [part for part in shown if part.isspace()] or reading.stop_sequence is not None
    thoughts = [part["text"] for item in body["output"] for part in item.get("summary", ())]
    assert "".join(thoughts) == reading.reasoning
    calls = [item["call_id"] for item in body["output"] if "call_id" in item]
    assert calls == [call.id for call in reading.tool_calls]


@settings(max_examples=2500)
@given(
    fragments,
    st.lists(st.integers(0, 200), max_size=30),
    st.booleans(),
    st.sampled_from([[], ["STOP"], ["STOP", "ST"]]),
    st.booleans(),
)
def test_w40_the_cutting_changes_nothing(
    whole: str, cuts: list[int], tools: bool, stops: list[str], cut: bool
) -> None:
    at_once = answered(whole, [], tools, stops, cut).body()
    assert answered(whole, cuts, tools, stops, cut).body() == at_once


# --- bodies ----------------------------------------------------------------------------------

GOOD: list[dict[str, Any]] = [
    {
        "model": "m",
        "stream": True,
        "instructions": "Be brief.",
        "max_output_tokens": 64,
        "temperature": 0.5,
        "metadata": {"retention_seconds": 600, "a": "b"},
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "item_reference", "id": "msg_abcdefgh_00_1"},
        ],
        "tools": [*TOOLS, {"type": "web_search"}],
        "tool_choice": {"type": "function", "name": "f"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
        "prompt_cache_options": {"comparison_response_id": "resp_1"},
        "stop": ["x"],
    },
    {"model": "m", "input": "hi", "previous_response_id": "resp_1", "store": False, "seed": 1},
]
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**400), 2**31, 2**63]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["function", "message", "input_image", "auto", "\ud800", "{", "[" * 9000]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, v in inner for place in places(v, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A valid body in which some values are others, or gone."""
    body = copy.deepcopy(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(body)))
        if not path:
            return draw(values)
        holder = body
        for step in path[:-1]:
            holder = holder[step]
        if draw(st.booleans()):
            holder[path[-1]] = draw(values)
        else:
            del holder[path[-1]]
    return body


@settings(max_examples=1500)
@given(mutated())
def test_no_body_raises_anything_but_an_error_of_the_client_s(body: Any) -> None:
    try:
        request = parse(body)
        ask(request, None, "c")
    except WireError as error:
        assert error.status in (400, 404)
        assert error.message
        json.dumps(error.message, ensure_ascii=False).encode()
    else:
        sdk_response(Machine(request, FakeAnswer()).body())
