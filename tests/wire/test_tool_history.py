"""W11 on messages in the template's form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.wire.errors import WireError
from mlxnb.wire.tool_history import MESSAGES, RESPONSES, checked

USER = {"role": "user", "content": "hi"}


def calls(*ids: str | None) -> dict[str, Any]:
    made = [
        {"id": i, "type": "function", "function": {"name": f"f_{i}", "arguments": {}}} for i in ids
    ]
    return {"role": "assistant", "content": "", "tool_calls": made}


def result(call_id: str | None) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": f"of {call_id}"}


def test_history_without_tools_is_left_as_it_is() -> None:
    messages = [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "x"}]
    assert checked(messages, RESPONSES) == messages


def test_a_result_gets_its_call_s_name() -> None:
    out = checked([USER, calls("a"), result("a")], RESPONSES)
    assert out[-1] == {"role": "tool", "tool_call_id": "a", "content": "of a", "name": "f_a"}


@given(st.permutations(["a", "b", "c", "d"]))
def test_siblings_come_in_the_order_of_their_calls(order: list[str]) -> None:
    out = checked([USER, calls("a", "b", "c", "d"), *map(result, order), USER], RESPONSES)
    assert [m["tool_call_id"] for m in out if m["role"] == "tool"] == ["a", "b", "c", "d"]


def test_calls_left_open_before_are_answered_first() -> None:
    out = checked([result("b"), result("a"), USER], RESPONSES, {"a": "f", "b": "g"})
    assert [(m.get("tool_call_id"), m.get("name")) for m in out[:2]] == [("a", "f"), ("b", "g")]


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([USER, result("a")], "no such function_call"),
        ([USER, calls("a"), result("b"), result("a")], "no such function_call"),
        ([USER, calls("a"), USER], "there is none for 'a'"),
        ([USER, calls("a")], "there is none for 'a'"),
        ([USER, calls("a", "b"), result("a")], "there is none for 'b'"),
        ([USER, calls("a", "b"), result("a"), USER, result("b")], "there is none for 'b'"),
        ([USER, calls("a"), result("a"), result("a")], "more than one function_call_output"),
        ([USER, calls("a"), result("a"), USER, result("a")], "more than one function_call_output"),
        ([USER, calls("a", "a"), result("a")], "more than one function_call"),
        ([USER, calls("a"), result("a"), calls("a"), result("a")], "more than one function_call"),
        ([USER, calls(None)], "has no id"),
        ([USER, calls("")], "has no id"),
        ([USER, calls("a"), result(None)], "has no call_id"),
        ([USER, calls("a"), result("")], "has no call_id"),
    ],
)
def test_a_history_with_holes_is_refused(messages: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(WireError, match=says) as caught:
        checked(messages, RESPONSES)
    assert caught.value.status == 400
    assert caught.value.param == "input"


def test_open_calls_of_before_need_results() -> None:
    with pytest.raises(WireError, match="there is none for 'a'"):
        checked([USER], RESPONSES, {"a": "f"})


def test_messages_has_its_own_words() -> None:
    with pytest.raises(WireError, match="tool_result names the tool_use_id 'a'") as caught:
        checked([result("a")], MESSAGES)
    assert caught.value.param == "messages"
