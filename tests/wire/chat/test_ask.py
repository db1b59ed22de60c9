"""From a request to what the engine is asked (W9, W11, W16, W20, W22)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlxnb.sessions.ask import ToolChoice
from mlxnb.wire.errors import WireError

from .bodies import LOOK, RESULT, USER, asked, called

LISTEN = {"type": "function", "function": {"name": "listen"}}


def refused(**fields: Any) -> WireError:
    with pytest.raises(WireError) as error:
        asked(**fields)
    assert error.value.status == 400
    return error.value


def test_the_source_the_caller_and_the_asked_model() -> None:
    found = asked()
    assert (found.source, found.caller, found.model) == ("chat_completions", "someone", "gpt-x")


@pytest.mark.parametrize("role", ["system", "developer"])
def test_w16_the_first_instructions_are_the_system_text(role: str) -> None:
    found = asked(messages=[{"role": role, "content": "s"}, USER])
    assert (found.system, found.messages) == ("s", (USER,))


def test_later_instructions_stay_where_they_are() -> None:
    found = asked(messages=[USER, {"role": "developer", "content": "s"}, USER])
    assert found.messages == (USER, {"role": "system", "content": "s"}, USER)
    assert found.system is None


def test_parts_of_a_message_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert asked(messages=[{"role": "user", "content": parts}]).messages[0]["content"] == "a\nb"


def test_a_last_answer_is_not_continued() -> None:
    assert not asked(messages=[USER, {"role": "assistant", "content": "a"}]).continues_answer


def test_a_call_and_its_result_are_in_the_template_s_form() -> None:
    found = asked(messages=[USER, called(), RESULT])
    assert found.messages[1]["tool_calls"] == [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "look", "arguments": {"at": "sky"}},
        }
    ]
    assert found.messages[2] == {
        "role": "tool",
        "tool_call_id": "call_1",
        "name": "look",
        "content": "blue",
    }


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "a", "reasoning_content": "hm"}, {"content": "a", "reasoning_content": "hm"}),
        ({"content": [{"type": "refusal", "refusal": "no"}]}, {"content": "no"}),
        ({"content": None, "refusal": "no"}, {"content": "no"}),
        ({"content": None}, {"content": ""}),
    ],
)
def test_an_earlier_answer(message: Any, expected: Any) -> None:
    found = asked(messages=[USER, {"role": "assistant", **message}, USER])
    assert found.messages[1] == {"role": "assistant", **expected}


@pytest.mark.parametrize("arguments", ["{", "[]", "5", '"a"', '{"a": NaN}', '{"a": "\\ud800"}'])
def test_arguments_that_are_no_json_object_are_refused(arguments: str) -> None:
    error = refused(messages=[USER, called(arguments=arguments), RESULT])
    assert error.param == "messages[1].tool_calls[0].function.arguments"


def test_no_arguments_are_an_empty_object() -> None:
    (call,) = asked(messages=[USER, called(arguments=""), RESULT]).messages[1]["tool_calls"]
    assert call["function"]["arguments"] == {}


@pytest.mark.parametrize(
    "messages",
    [[USER, RESULT], [USER, called()], [USER, called(), USER], [USER, called("a", "b"), RESULT]],
)
def test_w11_history_that_does_not_fit_together_is_refused(messages: Any) -> None:
    assert refused(messages=messages).param == "messages"


def test_w11_results_are_put_in_the_order_of_their_calls() -> None:
    results = [{"role": "tool", "tool_call_id": i, "content": i} for i in "ba"]
    found = asked(messages=[USER, called("a", "b"), *results])
    assert [m["content"] for m in found.messages[2:]] == ["a", "b"]


# --- tools -----------------------------------------------------------------------------------


def test_tools_take_the_template_s_form() -> None:
    first, second = map(json.loads, asked(tools=[LOOK, LISTEN]).tools)
    assert first == LOOK
    assert second["function"]["parameters"] == {"type": "object", "properties": {}}


ALLOWED = {"type": "function", "function": {"name": "listen"}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ToolChoice()),
        ({"tool_choice": "auto"}, ToolChoice("auto")),
        ({"tool_choice": "none"}, ToolChoice("none")),
        ({"tool_choice": "required"}, ToolChoice("required")),
        ({"parallel_tool_calls": False}, ToolChoice("auto", parallel=False)),
        (
            {"tool_choice": {"type": "function", "function": {"name": "look"}}},
            ToolChoice("required", ("look",)),
        ),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": [ALLOWED]},
                }
            },
            ToolChoice("auto", ("listen",)),
        ),
    ],
)
def test_w16_tool_choice(fields: Any, expected: ToolChoice) -> None:
    assert asked(tools=[LOOK, LISTEN], **fields).tool_choice == expected


def test_w16_no_tool_is_shown_where_none_may_be_called() -> None:
    assert asked(tools=[LOOK], tool_choice="none").tools == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": [LOOK], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
        ),
        ({"tools": [LOOK, LOOK]}, "tools[1].function.name"),
    ],
)
def test_tools_that_cannot_be_called_are_refused(fields: Any, param: str) -> None:
    assert refused(**fields).param == param


# --- sampling, thinking, format --------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7}, 7),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7),
    ],
)
def test_the_limit(fields: Any, expected: int | None) -> None:
    assert asked(**fields).sampling.max_tokens == expected


@pytest.mark.parametrize(
    ("stop", "expected"),
    [(None, None), ("STOP", ("STOP",)), (["a", "\n", ""], ("a", "\n")), ("", ())],
)
def test_stops(stop: Any, expected: Any) -> None:
    assert asked(stop=stop).sampling.stop == expected


def test_sampling_is_passed_on() -> None:
    found = asked(
        temperature=1.5,
        top_p=0.9,
        presence_penalty=1,
        frequency_penalty=-1,
        logit_bias={"5": -100},
        seed=-1,
        top_k=3,
        min_p=0.1,
        repetition_penalty=1.1,
    ).sampling
    assert (found.temperature, found.top_p, found.presence_penalty) == (1.5, 0.9, 1)
    assert (found.frequency_penalty, found.logit_bias) == (-1, {5: -100})
    assert (found.seed, found.top_k, found.min_p) == (2**64 - 1, 3, 0.1)
    assert found.repetition_penalty == 1.1


@pytest.mark.parametrize(
    ("effort", "expected"),
    [
        (None, (None, None)),
        ("none", (False, None)),
        ("low", (True, 1024)),
        ("high", (True, None)),
    ],
)
def test_w16_effort(effort: Any, expected: Any) -> None:
    found = asked(reasoning_effort=effort)
    assert (found.thinking, found.thinking_budget) == expected


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, {}),
    ],
)
def test_w16_response_format(form: Any, expected: Any) -> None:
    schema = asked(response_format=form).schema
    assert (None if schema is None else json.loads(schema)) == expected


def test_w20_w22_key_and_salt_are_passed_on() -> None:
    found = asked(prompt_cache_key="a-long-key", cache_salt="mine")
    assert (found.key, found.cache_salt) == ("a-long-key", "mine")


def test_nothing_is_stored() -> None:
    assert not asked(store=True).store
