"""docs/fields-chat.md says of every field what the code does with it (W15)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from mlxnb.wire.chat import Machine, ask, parse
from mlxnb.wire.chat.request import ACCEPTED, REFUSED, ChatRequest
from mlxnb.wire.errors import WireError
from wire.answers import FakeAnswer, text, turn
from wire.field_tables import treatments, with_field

from .bodies import LOOK, RESULT, USER, body, called, run

PAGE = "fields-chat.md"
FIELDS = treatments(PAGE, "The request", "Extensions")
MESSAGE_FIELDS = treatments(PAGE, "Messages")

EXAMPLES: dict[str, Any] = {
    "model": "other",
    "messages": [{"role": "user", "content": "ho"}],
    "stream": True,
    "stream_options.include_usage": True,
    "stream_options.include_obfuscation": False,
    "max_completion_tokens": 5,
    "max_tokens": 5,
    "temperature": 0.5,
    "top_p": 0.5,
    "presence_penalty": 1,
    "frequency_penalty": 1,
    "logit_bias": {"5": 1},
    "seed": 3,
    "stop": "STOP",
    "tools": [LOOK],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "response_format": {"type": "json_object"},
    "reasoning_effort": "low",
    "prompt_cache_key": "a key of mine",
    "n": 2,
    "logprobs": True,
    "top_logprobs": 3,
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "wav"},
    "moderation": {"model": "m"},
    "functions": [{"name": "f"}],
    "function_call": "auto",
    "metadata": {"a": "b"},
    "store": True,
    "user": "u",
    "safety_identifier": "s",
    "service_tier": "flex",
    "verbosity": "low",
    "prediction": {"type": "content", "content": "x"},
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
    "web_search_options": {"search_context_size": "low"},
    "top_k": 5,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "cache_salt": "s",
    "timings": False,
}
AROUND: dict[str, dict[str, Any]] = {"tool_choice": {"tools": [LOOK]}}


def outcome(given: dict[str, Any]) -> Any:
    """All that a request leads to."""
    request = parse(given)
    made = Machine(request, FakeAnswer())
    sent = run(made, [text("hi")], turn())
    asked = dataclasses.replace(ask(request, "someone"), arrived=0)
    return asked, bool(request.stream), sent, made.body()


def names(fields: Any) -> set[str]:
    return {field.partition(".")[0] for field in fields}


def test_the_page_has_every_field_that_the_code_knows() -> None:
    assert names(FIELDS) == set(ChatRequest.model_fields) | ACCEPTED | set(REFUSED)


def test_the_page_has_every_field_of_the_newest_sdk() -> None:
    assert set(CompletionCreateParamsBase.__annotations__) <= names(FIELDS)


def test_there_is_an_example_of_each() -> None:
    assert set(EXAMPLES) == set(FIELDS)


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_does_what_the_page_says(field: str) -> None:
    around = body(**AROUND.get(field, {}))
    given = with_field(around, field, EXAMPLES[field])
    if FIELDS[field] == "refused":
        with pytest.raises(WireError) as refused:
            outcome(given)
        assert (refused.value.status, refused.value.param) == (400, field)
    else:
        assert (outcome(given) != outcome(around)) == (FIELDS[field] == "honoured")


ANSWER = {"role": "assistant", "content": "a"}
MESSAGE_EXAMPLES: dict[str, tuple[list[Any], list[Any]]] = {
    "content": ([USER], [{"role": "user", "content": [{"type": "text", "text": "ho"}]}]),
    "refusal": (
        [USER, {"role": "assistant"}, USER],
        [USER, {"role": "assistant", "refusal": "no"}, USER],
    ),
    "reasoning_content": ([USER, ANSWER], [USER, {**ANSWER, "reasoning_content": "hm"}]),
    "tool_calls": ([USER, ANSWER], [USER, {**called(), "content": "a"}, RESULT]),
    "tool_call_id": (
        [USER, called("a", "b")] + [{**RESULT, "tool_call_id": i, "content": i} for i in "ab"],
        [USER, called("b", "a")] + [{**RESULT, "tool_call_id": i, "content": i} for i in "ab"],
    ),
    "name": ([USER], [{**USER, "name": "Ann"}]),
    "audio": ([USER, ANSWER], [USER, {**ANSWER, "audio": {"id": "x"}}]),
}


@pytest.mark.parametrize("field", MESSAGE_FIELDS)
def test_each_field_of_a_message_does_what_the_page_says(field: str) -> None:
    if MESSAGE_FIELDS[field] == "refused":
        with pytest.raises(WireError) as refused:
            outcome(body(messages=[{"role": "user", "content": [{"type": field}]}]))
        assert (refused.value.param or "").startswith("messages[0].content[0]")
        return
    before, after = (outcome(body(messages=m)) for m in MESSAGE_EXAMPLES[field])
    assert (before != after) == (MESSAGE_FIELDS[field] == "honoured")


def test_one_answer_is_what_n_may_ask_for() -> None:
    assert outcome(body(n=1)) == outcome(body())
