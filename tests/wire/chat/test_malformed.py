"""Whatever a body holds, it is taken or it is the client's fault (W5–W7, W11, W15)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from mlxnb.wire.chat import ask, parse
from mlxnb.wire.errors import WireError, openai_body
from wire.mutated import mutated

from .bodies import LOOK, RESULT, USER, body, called
from .test_ask import ALLOWED, LISTEN, SCHEMA

GOOD = [
    body(),
    body(messages=[{"role": "developer", "content": [{"type": "text", "text": "s"}]}, USER]),
    body(messages=[USER, called("call_1", "call_2"), RESULT, RESULT | {"tool_call_id": "call_2"}]),
    body(
        tools=[LOOK, LISTEN],
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [ALLOWED]},
        },
        parallel_tool_calls=False,
    ),
    body(tools=[LOOK], tool_choice={"type": "function", "function": {"name": "look"}}),
    body(
        stream=True,
        stream_options={"include_usage": True},
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        reasoning_effort="low",
        stop=["a"],
        temperature=1,
        logit_bias={"5": 1},
        seed=3,
        n=1,
        max_completion_tokens=5,
        modalities=["text"],
        prompt_cache_key="key",
    ),
]


@pytest.mark.parametrize("good", GOOD)
def test_the_bodies_to_begin_with_are_right(good: Any) -> None:
    ask(parse(good), "someone")


@settings(max_examples=1200, database=None)
@given(mutated(GOOD))
def test_no_body_raises_anything_but_a_fault_of_the_client_s(given_body: Any) -> None:
    try:
        ask(parse(given_body), "someone")
    except WireError as error:
        assert 400 <= error.status < 500
        json.dumps(openai_body(error), ensure_ascii=False, allow_nan=False).encode()
