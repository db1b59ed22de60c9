"""What is filed of a request, and the bodies of the smaller routes."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import ResponseItem
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from openai.types.responses.response_item_list import ResponseItemList
from pydantic import TypeAdapter

from mlxnb.wire.errors import WireError
from mlxnb.wire.responses import Machine, counted, deleted, page, parse, settled

from .answers import FakeAnswer, FakeChain, turn

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "developer", "content": [{"type": "input_text", "text": "x"}]},
    {"role": "assistant", "content": "said", "id": "msg_own"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "content": None},
    {"call_id": "a", "name": "f", "arguments": "{}"},
    {"call_id": "a", "output": [{"type": "input_text", "text": "1"}]},
    {"type": "custom_tool_call", "call_id": "b", "name": "g", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "b", "output": "2"},
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "f"}]},
]


def filed(items: Any) -> list[dict[str, Any]]:
    made = Machine(parse({"model": "m", "input": items}), FakeAnswer())
    made.finish(turn())
    return made.to_file(FakeAnswer())[1]


@pytest.mark.parametrize("number", range(len(ITEMS)))
def test_every_filed_item_is_one_to_the_sdk(number: int) -> None:
    (item,) = filed([ITEMS[number]])
    TypeAdapter(ResponseItem).validate_python(item)


def test_a_string_is_filed_as_a_message() -> None:
    (item,) = filed("hi")
    assert item["content"] == [{"type": "input_text", "text": "hi"}]


def test_filed_items_keep_their_ids_and_get_one() -> None:
    ids = [item["id"] for item in filed(ITEMS)]
    assert ids[2] == "msg_own"
    assert len(set(ids)) == len(ITEMS)


def test_w23_what_is_filed_is_what_was_sent() -> None:
    made = Machine(parse({"model": "m", "input": "hi"}), FakeAnswer())
    last = made.finish(turn())[-1]
    assert made.to_file(FakeAnswer())[0] == last[1]["response"]


def test_c35_only_new_items_are_filed() -> None:
    chain = FakeChain({"a": "f"}, [{"id": "fc_1", "call_id": "a", "type": "function_call"}])
    echoed = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "a", "output": "1"}
    request = settled(parse({"model": "m", "input": [echoed, result]}), chain)
    made = Machine(request, FakeAnswer())
    assert [item["type"] for item in made.to_file(FakeAnswer())[1]] == ["function_call_output"]


LISTED = [{"id": str(n)} for n in range(5)]


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ({}, "43210", False),
        ({"order": "asc"}, "01234", False),
        ({"order": "asc", "limit": "2"}, "01", True),
        ({"order": "asc", "limit": 2, "after": "1"}, "23", True),
        ({"after": "2"}, "10", False),
        ({"after": "0"}, "", False),
    ],
)
def test_a_page_of_items(query: dict[str, Any], ids: str, more: bool) -> None:
    listed = page(LISTED, **query)
    assert "".join(item["id"] for item in listed["data"]) == ids
    assert listed["has_more"] is more
    assert (listed["first_id"], listed["last_id"]) == (ids[:1], ids[-1:])


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"limit": "²"}, "limit"),
        ({"limit": -1}, "limit"),
        ({"order": "up"}, "order"),
        ({"after": "9"}, "after"),
    ],
)
def test_a_page_that_cannot_be(query: dict[str, Any], param: str) -> None:
    with pytest.raises(WireError) as caught:
        page(LISTED, **query)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_page_is_one_to_the_sdk() -> None:
    ResponseItemList.model_validate(page(filed(ITEMS)))


def test_a_count_is_one_to_the_sdk() -> None:
    InputTokenCountResponse.model_validate(counted(5))


def test_a_deleted_response_says_so() -> None:
    assert deleted("resp_1") == {"id": "resp_1", "object": "response", "deleted": True}
