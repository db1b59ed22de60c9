"""W5 to W8, W15 and W55: what a body may say, and how it is told what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from mlxnb.wire.errors import WireError
from mlxnb.wire.responses import compared, parse, parse_count, previous_id

BASE: dict[str, Any] = {"model": "m", "input": "hi"}
FUNCTION = {"type": "function", "name": "f"}


def refused(body: Any) -> WireError:
    with pytest.raises(WireError) as caught:
        parse(body)
    assert caught.value.status == 400
    return caught.value


def item(**fields: Any) -> dict[str, Any]:
    return {**BASE, "input": [fields]}


@pytest.mark.parametrize("body", [None, [], "x", 5, True, [BASE]])
def test_w5_the_body_is_an_object(body: Any) -> None:
    assert "JSON object" in refused(body).message


@pytest.mark.parametrize("value", ["true", 1, 0, None, {}, []])
def test_w5_stream_is_a_boolean(value: Any) -> None:
    assert refused({**BASE, "stream": value}).param == "stream"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"input": "x"}, "model", "missing_required_parameter"),
        ({"model": "m"}, "input", "missing_required_parameter"),
        ({"model": "", "input": "x"}, "model", "invalid_value"),
        ({"model": None, "input": "x"}, "model", "invalid_type"),
        ({"model": 5, "input": "x"}, "model", "invalid_type"),
        ({"model": "m", "input": []}, "input", "invalid_value"),
        ({"model": "m", "input": None}, "input", "invalid_type"),
        ({"model": "m", "input": {}}, "input", "invalid_type"),
        ({"model": "m", "input": ["x"]}, "input[0]", "invalid_value"),
        ({"model": "m", "input": [{}]}, "input[0]", "invalid_value"),
    ],
)
def test_w6_model_and_input_are_needed(body: Any, param: str, code: str) -> None:
    error = refused(body)
    assert (error.param, error.code) == (param, code)
    assert error.message.startswith(param)


@pytest.mark.parametrize("value", [0, -1, 2**31, 1.0, 1.5, "5", True, [], {}])
def test_w7_max_output_tokens_names_its_range(value: Any) -> None:
    error = refused({**BASE, "max_output_tokens": value})
    assert error.param == "max_output_tokens"
    assert "[1, 2147483647]" in error.message


@pytest.mark.parametrize("value", [None, 1, 2**31 - 1])
def test_w7_max_output_tokens_within_its_range(value: Any) -> None:
    assert parse({**BASE, "max_output_tokens": value}).max_output_tokens == value


@pytest.mark.parametrize("value", [59, 7776001, 60.0, "60", True, None, []])
def test_w8_retention_out_of_range(value: Any) -> None:
    error = refused({**BASE, "metadata": {"retention_seconds": value}})
    assert error.param == "metadata.retention_seconds"
    assert "[60, 7776000]" in error.message


@pytest.mark.parametrize("value", [60, 7776000])
def test_w8_retention_in_range(value: int) -> None:
    assert parse({**BASE, "metadata": {"retention_seconds": value}}).retention_s == value


@pytest.mark.parametrize(
    ("metadata", "param"),
    [
        ({"a": 1}, "metadata.a"),
        ({"a": "x" * 513}, "metadata.a"),
        ({"k" * 65: "x"}, f"metadata.{'k' * 64}"),
        ({str(n): "x" for n in range(17)}, "metadata"),
        ("x", "metadata"),
    ],
)
def test_metadata_has_the_vendor_s_limits(metadata: Any, param: str) -> None:
    assert refused({**BASE, "metadata": metadata}).param == param


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "input_image", "image_url": "https://x/y.png"}, ".type"),
        ({"type": "input_image", "image_url": "data:image/png;base64,AA"}, ".type"),
        ({"type": "input_file", "file_id": "f"}, ".type"),
        ({"type": "input_audio", "input_audio": {}}, ".type"),
        ({"type": "input_text"}, ".text"),
        ({"type": "input_text", "text": None}, ".text"),
        ({"type": "refusal"}, ".refusal"),
        ({"type": 5}, ".type"),
        ({}, ""),
        ("x", ""),
    ],
)
def test_w15_a_part_that_cannot_be_read_is_named(part: Any, param: str) -> None:
    good = {"type": "input_text", "text": "a"}
    error = refused(item(role="user", content=[good, part]))
    assert error.param == f"input[0].content[1]{param}"
    if param == ".type" and isinstance(part["type"], str):
        assert part["type"] in error.message


def test_w15_an_image_in_a_tool_s_result_is_named() -> None:
    output = [{"type": "input_image", "image_url": "data:"}]
    error = refused(item(type="function_call_output", call_id="a", output=output))
    assert error.param == "input[0].output[0].type"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"type": "web_search_call", "id": "x"}, "input[0].type"),
        ({"type": 5}, "input[0].type"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": None}, "input[0].content"),
        ({"type": "function_call", "call_id": "a", "arguments": "{}"}, "input[0].name"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call", "call_id": "a", "name": "f"}, "input[0].arguments"),
        (
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "[]"},
            "input[0].arguments",
        ),
        (
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{x"},
            "input[0].arguments",
        ),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
        ({"type": "function_call_output", "call_id": "", "output": "x"}, "input[0].call_id"),
        ({"type": "function_call_output", "call_id": "a"}, "input[0].output"),
        ({"type": "custom_tool_call", "call_id": "a", "name": "f"}, "input[0].input"),
        ({"type": "reasoning", "summary": "x"}, "input[0].summary"),
    ],
)
def test_a_wrong_item_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused({**BASE, "input": [fields]}).param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
        {"role": "developer", "content": [{"type": "input_text", "text": "x", "extra": 1}]},
        {"type": "reasoning", "summary": [], "content": None},
        {"summary": [{"type": "summary_text", "text": "x"}]},
        {"type": "reasoning", "id": None, "summary": [], "encrypted_content": "x"},
        {"call_id": "a", "name": "f", "arguments": ""},
        {"call_id": "a", "output": "x"},
        {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"},
        {"id": "msg_1"},
        {"type": "additional_tools", "role": "developer", "tools": [FUNCTION]},
    ],
)
def test_w55_items_may_leave_out_what_clients_leave_out(fields: dict[str, Any]) -> None:
    assert len(parse({**BASE, "input": [fields]}).items) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [FUNCTION]},
        {"tools": [{"type": "web_search"}, {"type": "namespace", "name": "n", "tools": []}]},
        {"tools": []},
        {"tools": None, "tool_choice": None, "parallel_tool_calls": None, "text": None},
        {"client_metadata": {"a": 1}},
        {"include": ["reasoning.encrypted_content"]},
        {"safety_identifier": "x", "user": "y"},
        {"truncation": "auto"},
        {"reasoning": None},
        {"reasoning": {"effort": None, "summary": "auto"}},
        {"metadata": None, "instructions": None, "store": None, "stop": None},
        {"background": False, "conversation": None, "prompt": None, "top_logprobs": 0},
        {"a_field_of_tomorrow": {"x": [1]}},
    ],
)
def test_w55_what_real_clients_send_is_let_pass(fields: dict[str, Any]) -> None:
    parse({**BASE, **fields})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "tools[0].parameters"),
        ({"tools": [{"name": "f"}]}, "tools[0]"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools"),
        ({"tools": "f"}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "g"}, "tools": [FUNCTION]}, "tool_choice"),
        ({"tool_choice": {"type": "function"}, "tools": [FUNCTION]}, "tool_choice.name"),
        ({"tool_choice": {"type": "file_search"}, "tools": [FUNCTION]}, "tool_choice.type"),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
            "tool_choice",
        ),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": 0.5}, "top_k"),
        ({"stop": 5}, "stop"),
        ({"stop": ["a", 5]}, "stop[1]"),
        ({"store": "yes"}, "store"),
        ({"instructions": 5}, "instructions"),
        ({"previous_response_id": ""}, "previous_response_id"),
        ({"previous_response_id": 5}, "previous_response_id"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"text": {"format": {}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        (
            {"text": {"format": {"type": "json_schema", "name": "a b", "schema": {}}}},
            "text.format.name",
        ),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"moderation": {"model": "x"}}, "moderation"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"prompt_cache_options": {"prewarm": True}}, "prompt_cache_options.prewarm"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    error = refused({**BASE, **fields})
    assert error.param == param
    assert param.split(".")[0].split("[")[0] in error.message


def test_the_response_that_is_continued() -> None:
    assert previous_id(parse(BASE)) is None
    assert previous_id(parse({**BASE, "previous_response_id": "resp_1"})) == "resp_1"


def test_the_response_that_is_compared_with() -> None:
    assert compared(parse({**BASE, "prompt_cache_options": {}})) is None
    options = {"comparison_response_id": "resp_1"}
    assert compared(parse({**BASE, "prompt_cache_options": options})) == "resp_1"


def test_a_count_may_leave_out_the_input_of_a_continuation() -> None:
    assert parse_count({"model": "m", "previous_response_id": "resp_1"}).items == []


@pytest.mark.parametrize("body", [{"model": "m"}, {"model": "m", "input": []}, {"input": "x"}])
def test_a_count_needs_something_to_count(body: Any) -> None:
    with pytest.raises(WireError) as caught:
        parse_count(body)
    assert caught.value.status == 400
