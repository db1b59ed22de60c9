"""docs/fields-messages.md says of every field what the code does with it (W15, W54)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
from anthropic.types import message_create_params, tool_param
from anthropic.types.beta import message_create_params as beta_params

from mlxnb.wire.errors import WireError
from mlxnb.wire.messages import Machine, ask, parse
from mlxnb.wire.messages.request import ACCEPTED, REFUSED, MessagesRequest
from wire.answers import FakeAnswer, text, thought, turn
from wire.field_tables import treatments, with_field

from .bodies import CALLED, LOOK, USER, body, result
from .streams import run
from .test_machine import BEGIN

PAGE = "fields-messages.md"
FIELDS = treatments(PAGE, "The request", "Extensions")
BLOCKS = treatments(PAGE, "Messages and their blocks")
TOOL_FIELDS = treatments(PAGE, "Tools")

FORMAT = {"type": "json_schema", "schema": {"type": "object"}}
ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 20}}
EXAMPLES: dict[str, Any] = {
    "model": "other",
    "messages": [{"role": "user", "content": "ho"}],
    "max_tokens": 50,
    "system": "Be brief.",
    "stream": True,
    "stop_sequences": ["STOP"],
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "tools": [LOOK],
    "tool_choice.type": "any",
    "tool_choice.disable_parallel_tool_use": True,
    "thinking.type": "disabled",
    "thinking.budget_tokens": 30,
    "thinking.display": "omitted",
    "output_config.format": FORMAT,
    "output_config.effort": "low",
    "output_format": FORMAT,
    "metadata.user_id": "u",
    "diagnostics.previous_message_id": "msg_1",
    "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
    "compaction": {"type": "auto"},
    "cache_control": {"type": "ephemeral"},
    "service_tier": "standard_only",
    "speed": "fast",
    "inference_geo": "eu",
    "betas": ["message-threads-2026-08-12"],
    "billing_policy": {"type": "x"},
    "fallbacks": [{"model": "m"}],
    "fallback_credit_token": "t",
    "user_profile_id": "p",
    "workspace_id": "w",
    "container": "c",
    "mcp_servers": [{"type": "url", "url": "https://example.com", "name": "n"}],
    "thread": {"type": "create"},
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "seed": 3,
    "cache_salt": "s",
    "timings": False,
}
AROUND: dict[str, dict[str, Any]] = {
    "tool_choice.type": {"tools": [LOOK]},
    "tool_choice.disable_parallel_tool_use": {"tools": [LOOK], "tool_choice": {"type": "auto"}},
    "thinking.budget_tokens": ENABLED,
    "thinking.display": ENABLED,
}
"""What must be there so that a field can be."""


@dataclass
class Missed:
    reason: str = "evicted"
    tokens_lost: int = 5


def outcome(given: dict[str, Any]) -> Any:
    """All that a request leads to."""
    request = parse(given)
    made = Machine(request, FakeAnswer(), miss=Missed())
    sent = run(made, [BEGIN, thought("hm"), text("hi")], turn())
    asked = dataclasses.replace(ask(request, "someone"), arrived=0)
    return asked, request.stream, sent, made.body()


def names(fields: Any) -> set[str]:
    return {field.partition(".")[0] for field in fields}


def test_the_page_has_every_field_that_the_code_knows() -> None:
    known = {field.alias or name for name, field in MessagesRequest.model_fields.items()}
    assert names(FIELDS) == known | ACCEPTED | set(REFUSED) | {"thread"}


def test_the_page_has_every_field_of_the_newest_sdk() -> None:
    bases = (message_create_params.MessageCreateParamsBase, beta_params.MessageCreateParamsBase)
    known = {name for base in bases for name in base.__annotations__}
    assert known <= names(FIELDS)


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


# --- blocks ----------------------------------------------------------------------------------

TEXT = {"type": "text", "text": "b"}
BLOCK_EXAMPLES: dict[str, list[Any]] = {
    "text": [{"role": "user", "content": [TEXT]}],
    "document": [
        {
            "role": "user",
            "content": [{"type": "document", "source": {"type": "text", "data": "d"}}],
        }
    ],
    "tool_use": [CALLED, result()],
    "tool_result": [CALLED, result()],
    "tool_reference": [CALLED, result([{"type": "tool_reference", "tool_name": "look"}])],
    "thinking": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}, USER],
    "redacted_thinking": [
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, TEXT]},
        USER,
    ],
    "image": [{"role": "user", "content": [{"type": "image"}]}],
    "search_result": [{"role": "user", "content": [{"type": "search_result"}]}],
}


def said(messages: list[Any], without: str = "") -> Any:
    """What comes of messages, and of the same without blocks of one type."""
    kept = [
        {**message, "content": [b for b in message["content"] if b["type"] != without]}
        if isinstance(message["content"], list)
        else message
        for message in messages
    ]
    return ask(parse(body(messages=[USER, *kept])), "").messages


def test_there_is_an_example_of_each_block() -> None:
    assert set(BLOCK_EXAMPLES) == set(BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_each_block_does_what_the_page_says(block: str) -> None:
    messages = BLOCK_EXAMPLES[block]
    if BLOCKS[block] == "refused":
        with pytest.raises(WireError) as refused:
            said(messages)
        assert refused.value.param == "messages[1].content[0]"
    elif BLOCKS[block] == "no effect":
        assert said(messages) == said(messages, without=block)
    else:
        assert len(said(messages)) > 1 or said(messages)[0]["content"] != "hi"


# --- tools -----------------------------------------------------------------------------------

TOOL_EXAMPLES: dict[str, Any] = {
    "name": "hear",
    "description": "Hear it.",
    "input_schema": {"type": "object", "properties": {}},
    "type": "web_search_20250305",
    "strict": True,
    "cache_control": {"type": "ephemeral"},
    "defer_loading": True,
    "eager_input_streaming": True,
    "input_examples": [{"at": "sky"}],
    "allowed_callers": ["direct"],
}


def test_the_page_has_every_field_of_a_tool() -> None:
    assert set(TOOL_FIELDS) == set(tool_param.ToolParam.__annotations__) == set(TOOL_EXAMPLES)


@pytest.mark.parametrize("field", TOOL_FIELDS)
def test_each_field_of_a_tool_does_what_the_page_says(field: str) -> None:
    changed = outcome(body(tools=[{**LOOK, field: TOOL_EXAMPLES[field]}]))
    assert (changed != outcome(body(tools=[LOOK]))) == (TOOL_FIELDS[field] == "honoured")
