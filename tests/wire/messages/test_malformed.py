"""Whatever a body holds, it is taken or it is the client's fault (W5–W7, W11, W15)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from mlxnb.wire.errors import WireError, anthropic_body
from mlxnb.wire.messages import ask, parse, parse_count
from wire.anthropic_stream import check_error
from wire.mutated import mutated

from .bodies import CALLED, LOOK, USER, body, result
from .test_ask import title_request, two_calls

DOCUMENT = {"type": "document", "title": "t", "source": {"type": "text", "data": "d"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
SYSTEM = {"role": "system", "content": "s"}
GOOD = [
    body(),
    body(messages=[USER, CALLED, result([{"type": "text", "text": "b"}], is_error=True)]),
    body(messages=[USER, two_calls(), result("B", "toolu_b"), result("A", "toolu_a"), USER]),
    body(messages=[{"role": "user", "content": [DOCUMENT, {"type": "text", "text": "Why?"}]}]),
    body(
        system=[{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        messages=[
            USER,
            {"role": "assistant", "content": [THOUGHT]},
            {"role": "system", "content": "s"},
        ],
        tools=[LOOK, {"type": "web_search_20250305", "name": "web_search"}],
        tool_choice={"type": "tool", "name": "look", "disable_parallel_tool_use": True},
    ),
    body(
        stream=True,
        stop_sequences=["a", " "],
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        seed=3,
        cache_salt="s",
        metadata={"user_id": "u"},
        thinking={"type": "enabled", "budget_tokens": 50, "display": "omitted"},
        diagnostics={"previous_message_id": "msg_1"},
    ),
    body(**title_request()),
]


@pytest.mark.parametrize("good", GOOD)
def test_the_bodies_to_begin_with_are_right(good: Any) -> None:
    ask(parse(good), "someone")
    ask(parse_count(good), "someone")


@settings(max_examples=1200, database=None)
@given(mutated(GOOD))
def test_no_body_raises_anything_but_a_fault_of_the_client_s(given_body: Any) -> None:
    for read in (parse, parse_count):
        try:
            ask(read(given_body), "someone")
        except WireError as error:
            assert 400 <= error.status < 500
            told = anthropic_body(error, "req_1")
            check_error(told)
            json.dumps(told, ensure_ascii=False, allow_nan=False).encode()
