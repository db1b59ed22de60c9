"""W5–W7, W15, W53, W54: which bodies are taken, and what is said of those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from mlxnb.wire.errors import WireError, anthropic_body
from mlxnb.wire.messages import parse, parse_count
from wire.anthropic_stream import check_error

from .bodies import CALLED, LOOK, USER, body, result

IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def refusal(given: Any) -> WireError:
    with pytest.raises(WireError) as refused:
        parse(given)
    assert refused.value.status == 400
    check_error(anthropic_body(refused.value, "req_1"))
    return refused.value


@pytest.mark.parametrize("given", [None, [], "hi", 5, True, [body()]])
def test_w5_a_body_is_an_object(given: Any) -> None:
    refusal(given)


@pytest.mark.parametrize("given", ["true", 1, 0, [], {}])
def test_w5_stream_is_a_boolean(given: Any) -> None:
    assert refusal(body(stream=given)).param == "stream"


@pytest.mark.parametrize("name", ["model", "messages", "max_tokens"])
def test_w6_a_field_that_is_needed_is_named(name: str) -> None:
    error = refusal(body(**{name: None}))
    assert error.param == name
    assert "missing" in error.message


@pytest.mark.parametrize("given", [[], {}, "hi", 5, [5], ["hi"], [[]], [None]])
def test_w6_messages_is_a_list_of_objects_that_is_not_empty(given: Any) -> None:
    assert (refusal(body(messages=given)).param or "").startswith("messages")


@pytest.mark.parametrize("given", [0, -1, 2**31, 10**30, 1.5, 1.0, "10", True, [], {}])
def test_w7_max_tokens_out_of_range_names_the_range(given: Any) -> None:
    error = refusal(body(max_tokens=given))
    assert error.param == "max_tokens"
    assert "[1, 2147483647]" in error.message
    assert "missing" not in error.message


@pytest.mark.parametrize("given", [1, 2**31 - 1])
def test_w7_max_tokens_reaches_from_one_to_the_largest(given: int) -> None:
    assert parse(body(max_tokens=given)).max_tokens == given


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"content": "hi"}, "messages[0]"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "robot", "content": "hi"}, "messages[0]"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": ["hi"]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"text": "hi"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [IMAGE]}, "messages[0].content[0]"),
        (result([IMAGE]), "messages[0].content[0].content[0]"),
        (result(id=""), "messages[0].content[0].tool_use_id"),
        (result(is_error="no"), "messages[0].content[0].is_error"),
        ({"role": "user", "content": CALLED["content"]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": result()["content"]}, "messages[0].content[0]"),
        ({"role": "system", "content": [IMAGE]}, "messages[0].content[0].type"),
    ],
)
def test_w15_a_part_that_is_wrong_is_named(message: Any, param: str) -> None:
    error = refusal(body(messages=[message]))
    assert error.param is not None
    assert error.param.startswith(param)


@pytest.mark.parametrize(
    "source",
    [{"type": "base64", "data": "JVBE"}, {"type": "url"}, {"type": "file", "file_id": "f"}],
)
def test_w15_a_document_without_its_text_is_refused(source: Any) -> None:
    block = {"type": "document", "source": source}
    error = refusal(body(messages=[{"role": "user", "content": [block]}]))
    assert (error.param or "").startswith("messages[0].content[0].source")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"system": 5}, "system"),
        ({"system": [IMAGE]}, "system[0]"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"description": "nameless"}]}, "tools[0].name"),
        ({"tools": [LOOK | {"input_schema": []}]}, "tools[0].input_schema"),
        ({"tools": [LOOK | {"name": ""}]}, "tools[0].name"),
        ({"tools": [LOOK], "tool_choice": "auto"}, "tool_choice"),
        ({"tools": [LOOK], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"temperature": 1.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_k": 0.5}, "top_k"),
        ({"stop_sequences": "stop"}, "stop_sequences"),
        ({"stop_sequences": [5]}, "stop_sequences[0]"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "sometimes"}}, "thinking"),
        ({"thinking": True}, "thinking"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"diagnostics": {"previous_message_id": 5}}, "diagnostics.previous_message_id"),
        ({"metadata": {"user_id": 5}}, "metadata.user_id"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        ({"container": "c_1"}, "container"),
    ],
)
def test_a_field_that_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(body(**fields))
    assert (error.param or "").startswith(param)
    assert error.message


def test_w54_a_thread_is_refused_so_that_the_sdk_sends_everything() -> None:
    error = refusal(body(thread={"type": "create"}))
    assert anthropic_body(error, "req_1")["error"]["details"] == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "adaptive", "display": "omitted"}},
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        {"output_config": {"effort": "high"}},
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"metadata": {"user_id": None}},
        {"metadata": {"user_id": "u", "more": 1}},
        {"tools": [LOOK | {"defer_loading": True, "eager_input_streaming": None, "strict": True}]},
        {"tools": [LOOK | {"type": "custom", "cache_control": {"type": "ephemeral"}}]},
        {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 5}]},
        {"tools": []},
        {"system": []},
        {"system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]},
        {"messages": [{"role": "system", "content": "s"}, USER]},
        {"messages": [USER, {"role": "system", "content": [{"type": "text", "text": "s"}]}]},
        {"messages": [USER, CALLED, result([{"type": "text", "text": "blue"}])]},
        {"messages": [USER, CALLED, result([])]},
        {"messages": [USER, CALLED, result([{"type": "tool_reference", "tool_name": "look"}])]},
        {"cache_control": {"type": "ephemeral"}, "service_tier": "auto", "speed": "fast"},
        {"betas": ["x"], "inference_geo": "eu", "nobody_knows": {"a": 1}},
        {"thread": None, "container": None, "mcp_servers": [], "diagnostics": None},
        {"stream": True, "top_k": 5, "top_p": 1, "temperature": 0, "stop_sequences": []},
    ],
)
def test_w54_what_clients_send_is_taken(fields: dict[str, Any]) -> None:
    given = body() | fields
    parse(given)
    parse_count(given)


def test_w51_a_count_needs_no_max_tokens() -> None:
    assert parse_count(body(max_tokens=None)).model == "claude-x"


def test_w51_a_count_is_as_strict_about_messages() -> None:
    with pytest.raises(WireError):
        parse_count(body(messages=[]))


def test_half_a_character_is_refused() -> None:
    refusal(body(messages=[{"role": "user", "content": "\ud83d"}]))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused(number: float) -> None:
    refusal(body(temperature=number))
