"""W11, W12 and W16: a request as what it asks of a model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlxnb.sessions.ask import Ask, ToolChoice
from mlxnb.wire.errors import WireError
from mlxnb.wire.responses import Machine, ask, parse, references, settled

from .answers import FakeAnswer, FakeChain, call, text, thought, turn

BASE: dict[str, Any] = {"model": "m", "input": "hi"}
F = {"type": "function", "name": "f", "description": "Does.", "parameters": {"type": "object"}}
G = {"type": "function", "name": "g", "strict": True}
PATCH = {"type": "custom", "name": "patch", "description": "Edit files."}
USER = {"role": "user", "content": "hi"}


def asked(chain: FakeChain | None = None, **fields: Any) -> Ask:
    return ask(parse({**BASE, **fields}), chain, "caller")


def messages(*items: dict[str, Any], chain: FakeChain | None = None) -> list[dict[str, Any]]:
    return list(asked(chain, input=list(items)).messages)


def a_call(call_id: str = "a", name: str = "f", arguments: str = '{"x": 1}') -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str = "a", told: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": told}


# --- messages --------------------------------------------------------------------------------


def test_a_string_is_a_user_s_message() -> None:
    assert asked().messages == ({"role": "user", "content": "hi"},)


def test_w16_instructions_lead() -> None:
    assert asked(instructions="Be brief.").system == "Be brief."


@pytest.mark.parametrize(("role", "expected"), [("developer", "system"), ("system", "system")])
def test_w16_developer_is_system_where_it_stands(role: str, expected: str) -> None:
    told = messages(USER, {"role": role, "content": "now"}, USER)
    assert [m["role"] for m in told] == ["user", expected, "user"]


def test_w16_a_run_of_the_assistant_s_items_is_one_turn() -> None:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]}
    told = messages(USER, reasoning, said, a_call("a"), a_call("b"), output("b"), output("a"))
    assert told[1] == {
        "role": "assistant",
        "content": "Let me see.",
        "reasoning_content": "Hm.",
        "tool_calls": [
            {"id": i, "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
            for i in ("a", "b")
        ],
    }
    assert [m.get("tool_call_id") for m in told[2:]] == ["a", "b"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb"),
        ([{"type": "output_text", "text": "a"}], "a"),
        ([{"type": "refusal", "refusal": "No."}], "No."),
        ([{"type": "summary_text", "text": "a"}], "a"),
        ([], ""),
    ],
)
def test_w16_texts_of_parts(parts: list[Any], expected: str) -> None:
    assert messages({"role": "user", "content": parts})[0]["content"] == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"summary": [{"type": "summary_text", "text": "s"}]}, "s"),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "c"}]}, "c"),
        ({"summary": [], "content": None}, None),
    ],
)
def test_w55_reasoning_comes_back(fields: dict[str, Any], expected: str | None) -> None:
    said = {"role": "assistant", "content": "x"}
    told = messages(USER, {"type": "reasoning", **fields}, said, USER)
    assert told[1].get("reasoning_content") == expected


def test_empty_arguments_are_none() -> None:
    told = messages(USER, a_call(arguments=""), output())
    assert told[1]["tool_calls"][0]["function"]["arguments"] == {}


def test_results_may_be_parts() -> None:
    parts = [{"type": "input_text", "text": "1"}, {"type": "input_text", "text": "2"}]
    assert messages(USER, a_call(), output("a", parts))[2] == {
        "role": "tool",
        "tool_call_id": "a",
        "name": "f",
        "content": "1\n2",
    }


def test_c33_custom_calls_come_back_as_the_function_that_the_model_saw() -> None:
    made = {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "***"}
    result = {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"}
    told = messages(USER, made, result)
    assert told[1]["tool_calls"][0]["function"] == {"name": "patch", "arguments": {"input": "***"}}
    assert told[2]["name"] == "patch"


@pytest.mark.parametrize(
    "items",
    [
        [output()],
        [USER, a_call()],
        [USER, a_call(), USER],
        [USER, a_call(), output("b")],
        [USER, a_call(), a_call(), output()],
        [USER, a_call("a"), a_call("b"), output("a")],
        [USER, a_call(), output(), output()],
    ],
)
def test_w11_a_history_with_holes_is_refused(items: list[dict[str, Any]]) -> None:
    with pytest.raises(WireError) as caught:
        messages(*items)
    assert (caught.value.status, caught.value.param) == (400, "input")
    assert caught.value.code == "invalid_tool_history"


# --- continuations ---------------------------------------------------------------------------


def test_w12_outstanding_calls_need_outputs() -> None:
    with pytest.raises(WireError, match="there is none for 'a'"):
        messages(USER, chain=FakeChain({"a": "f"}))


def test_w12_outputs_need_outstanding_calls() -> None:
    with pytest.raises(WireError, match="no such function_call"):
        messages(output(), chain=FakeChain())


def test_w12_outputs_of_outstanding_calls_are_taken() -> None:
    told = messages(output("b"), output("a"), USER, chain=FakeChain({"a": "f", "b": "g"}))
    assert [m.get("name") for m in told] == ["f", "g", None]


def test_w12_echoed_calls_are_dropped() -> None:
    chain = FakeChain({"a": "f"}, [{"id": "fc_1", **a_call()}])
    told = messages(a_call(), output(), chain=chain)
    assert [m["role"] for m in told] == ["tool"]


def test_w12_echoed_messages_and_reasoning_are_dropped() -> None:
    chain = FakeChain({}, [{"id": "rs_1", "type": "reasoning"}, {"id": "msg_1", "type": "message"}])
    told = messages(
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "assistant", "id": "msg_1", "content": "x"},
        USER,
        chain=chain,
    )
    assert told == [USER]


def test_w12_foreign_calls_are_refused() -> None:
    with pytest.raises(WireError, match=r"input\[0\] is a call that the previous") as caught:
        messages(a_call("z"), output("z"), chain=FakeChain({"a": "f"}, [a_call()]))
    assert caught.value.status == 400


def test_w10_what_is_not_said_on_a_continuation_is_left_open() -> None:
    wanted = asked(FakeChain(), previous_response_id="resp_1")
    assert (wanted.previous, wanted.system) == ("resp_1", None)


# --- references ------------------------------------------------------------------------------

STORED = "resp_abcdefgh_00"
REFERENCE = {"type": "item_reference", "id": "msg_abcdefgh_00_1"}
SENT = {
    "type": "message",
    "id": "msg_abcdefgh_00_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "said", "annotations": [], "logprobs": []}],
}


def test_a_reference_names_the_response_that_has_it() -> None:
    request = parse({**BASE, "input": [USER, REFERENCE, REFERENCE, {"id": "msg_foreign"}]})
    assert references(request) == [STORED]


def test_a_reference_is_what_it_names() -> None:
    request = settled(parse({**BASE, "input": [USER, REFERENCE, USER]}), None, {STORED: [SENT]})
    assert ask(request, None, "c").messages[1] == {"role": "assistant", "content": "said"}


def test_a_reference_to_nothing_is_404() -> None:
    with pytest.raises(WireError, match=r"input\[1\] names") as caught:
        messages(USER, REFERENCE)
    assert caught.value.status == 404


def test_a_reference_to_the_stored_turn_is_an_echo() -> None:
    assert messages(REFERENCE, USER, chain=FakeChain({}, [SENT])) == [USER]


# --- tools -----------------------------------------------------------------------------------


def test_tools_in_the_template_s_form() -> None:
    assert [json.loads(tool) for tool in asked(tools=[F, G]).tools] == [
        {
            "type": "function",
            "function": {"name": "f", "description": "Does.", "parameters": {"type": "object"}},
        },
        {
            "type": "function",
            "function": {"name": "g", "parameters": {"type": "object", "properties": {}}},
        },
    ]


def test_a_custom_tool_is_a_function_with_one_string() -> None:
    tool = json.loads(asked(tools=[PATCH]).tools[0])["function"]
    assert tool["description"] == "Edit files."
    assert list(tool["parameters"]["properties"]) == ["input"]


def test_a_custom_tool_s_grammar_is_told() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: begin"}
    tool = json.loads(asked(tools=[{**PATCH, "format": grammar}]).tools[0])["function"]
    assert "start: begin" in tool["description"]


def test_w55_tools_of_the_vendor_are_left_out() -> None:
    assert len(asked(tools=[{"type": "web_search"}, F]).tools) == 1


def test_tools_within_the_input_are_tools_too() -> None:
    added = {"type": "additional_tools", "role": "developer", "tools": [G]}
    assert len(asked(input=[added, USER], tools=[F]).tools) == 2


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice("auto")),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "g"}, ToolChoice("required", ("g",))),
        ({"type": "custom", "name": "patch"}, ToolChoice("required", ("patch",))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            ToolChoice("auto", ("f",)),
        ),
    ],
)
def test_w16_tool_choice(choice: Any, expected: ToolChoice) -> None:
    assert asked(tools=[F, G, PATCH], tool_choice=choice).tool_choice == expected


def test_w16_no_call_no_tools() -> None:
    assert asked(tools=[F], tool_choice="none").tools == ()


def test_w16_one_call_at_most() -> None:
    assert asked(tools=[F], parallel_tool_calls=False).tool_choice.parallel is False


# --- options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effort", "thinking", "bounded"),
    [
        (None, None, False),
        ("none", False, False),
        ("minimal", True, True),
        ("low", True, True),
        ("medium", True, True),
        ("max", True, False),
    ],
)
def test_w16_effort(effort: str | None, thinking: bool | None, bounded: bool) -> None:
    wanted = asked(reasoning={"effort": effort})
    assert wanted.thinking is thinking
    assert (wanted.thinking_budget is not None) is bounded


def test_w16_more_effort_is_a_larger_budget() -> None:
    levels = ("minimal", "low", "medium")
    budgets = [asked(reasoning={"effort": e}).thinking_budget or 0 for e in levels]
    assert budgets == sorted(set(budgets))


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "name": "x", "schema": {"type": "array"}}, {"type": "array"}),
    ],
)
def test_w16_text_format(form: dict[str, Any], schema: Any) -> None:
    wanted = asked(text={"format": form}).schema
    assert (None if wanted is None else json.loads(wanted)) == schema


def test_sampling_is_what_the_request_says() -> None:
    wanted = asked(temperature=0.5, top_p=1, seed=7, stop="x", max_output_tokens=9).sampling
    assert (wanted.temperature, wanted.top_p, wanted.seed, wanted.top_k) == (0.5, 1.0, 7, None)
    assert (wanted.stop, wanted.max_tokens) == (("x",), 9)


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({}, "model", "m"),
        ({}, "source", "responses"),
        ({}, "caller", "caller"),
        ({}, "store", True),
        ({"store": False}, "store", False),
        ({}, "key", None),
        ({"prompt_cache_key": ""}, "key", ""),
        ({"cache_salt": "s"}, "cache_salt", "s"),
        ({"metadata": {"retention_seconds": 60}}, "retention_s", 60),
        ({"metadata": {"a": "b"}}, "metadata", {"a": "b"}),
        ({}, "continues_answer", False),
    ],
)
def test_an_ask_has_the_request_s_fields(fields: Any, name: str, value: Any) -> None:
    assert getattr(asked(**fields), name) == value


# --- replay ----------------------------------------------------------------------------------


def test_what_was_sent_comes_back_as_the_same_turn() -> None:
    request = parse({**BASE, "tools": [F, PATCH], "reasoning": {"summary": "auto"}})
    made = Machine(request, FakeAnswer())
    pieces = [
        thought("Hm "),
        text("one"),
        thought("so."),
        text(" two"),
        call("f", {"x": 1}, "call_1"),
        call("patch", {"input": "p"}, "call_2"),
    ]
    for piece in pieces:
        made.feed(piece)
    made.finish(turn("tool_calls"))
    results = [output("call_1"), {**output("call_2"), "type": "custom_tool_call_output"}]
    back = messages(USER, *made.body()["output"], *results)[1]
    assert (back["content"], back["reasoning_content"]) == ("one two", "Hm so.")
    assert [c["function"]["arguments"] for c in back["tool_calls"]] == [{"x": 1}, {"input": "p"}]
