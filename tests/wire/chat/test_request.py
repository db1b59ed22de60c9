"""Which bodies are taken, and what is said of those that are not (W5–W7, W15)."""

from __future__ import annotations

from typing import Any

import pytest

from mlxnb.wire.chat import parse
from mlxnb.wire.errors import WireError, openai_body

from .bodies import LOOK, RESULT, USER, body, called

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}


def refusal(given: Any) -> WireError:
    with pytest.raises(WireError) as refused:
        parse(given)
    assert refused.value.status == 400
    assert openai_body(refused.value)["error"]["type"] == "invalid_request_error"
    return refused.value


@pytest.mark.parametrize("given", [None, [], "hi", 5, True])
def test_w5_a_body_is_an_object(given: Any) -> None:
    refusal(given)


@pytest.mark.parametrize("name", ["model", "messages"])
def test_w6_a_field_that_is_needed_is_named(name: str) -> None:
    given = body()
    del given[name]
    error = refusal(given)
    assert error.param == name
    assert "missing" in error.message


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("given", [0, -1, 2**31, 1.5, "10", True, []])
def test_w7_a_limit_out_of_range_names_the_range(name: str, given: Any) -> None:
    error = refusal(body(**{name: given}))
    assert error.param == name
    assert "[1, 2147483647]" in error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [AUDIO]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [USER, called("")]}, "messages[1].tool_calls[0].id"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "alloy"}}, "audio"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"presence_penalty": -3}, "presence_penalty"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"seed": 0.5}, "seed"),
        ({"stop": 5}, "stop"),
        ({"stop": ["a", 5]}, "stop"),
        ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [LOOK], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [LOOK], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"prompt_cache_key": 5}, "prompt_cache_key"),
    ],
)
def test_a_field_that_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(body(**fields))
    assert (error.param or "").startswith(param)
    assert error.message


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": None, "n": 1, "stop": None, "tools": None, "tool_choice": None, "seed": -5},
        {"logprobs": False, "top_logprobs": None, "modalities": ["text"], "audio": None},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"user": "u", "store": True, "metadata": {"a": "b"}, "service_tier": "auto"},
        {"prediction": None, "verbosity": "low", "safety_identifier": "s"},
        {"prompt_cache_options": {"mode": "explicit"}, "prompt_cache_retention": "24h"},
        {"nobody_knows": [1]},
        {"messages": [{"role": "developer", "content": "s"}, USER]},
        {"messages": [USER, called(), RESULT, {"role": "assistant", "content": None}, USER]},
        {"messages": [{"role": "user", "name": "Ann", "content": [{"type": "text", "text": "x"}]}]},
    ],
)
def test_what_clients_send_is_taken(fields: dict[str, Any]) -> None:
    parse(body(**fields))
