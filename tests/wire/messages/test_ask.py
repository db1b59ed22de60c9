"""W9, W11, W17, W50, W51, C27, C28, C31: from a request to what the engine is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlxnb.sessions.ask import ToolChoice
from mlxnb.wire.errors import WireError
from mlxnb.wire.messages import ask, parse_count
from mlxnb.wire.messages.signature import sign

from .bodies import CALLED, LOOK, USER, asked, body, result

BILLING = "x-anthropic-billing-header: cc_version=2.1.37; cch={};"
TITLE = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}
TITLE_SYSTEM = "Generate a concise title for this session. Return JSON with a single title field."


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def refused(**fields: Any) -> WireError:
    with pytest.raises(WireError) as error:
        asked(**fields)
    assert error.value.status == 400
    return error.value


def test_w9_the_model_stays_as_asked_for() -> None:
    assert asked(model="claude-sonnet-9").model == "claude-sonnet-9"


def test_the_source_and_the_caller_are_named() -> None:
    found = asked()
    assert (found.source, found.caller) == ("messages", "someone")


# --- the system text -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (None, None),
        ("You are brief.", "You are brief."),
        ("", ""),
        ([], None),
        ([text("a"), text("b")], "a\nb"),
        ([text(BILLING.format("1")), text("a"), text("b")], "a\nb"),
        ([text("a"), text(BILLING.format("1"))], "a"),
        ([text(BILLING.format("1"))], None),
        (BILLING.format("1"), None),
        (BILLING.format("1") + "\nYou are brief.", "You are brief."),
        (BILLING.format("1") + "\n\n  You are brief.\n", "  You are brief.\n"),
        ([text(BILLING.format("1") + "\nYou are brief.")], "You are brief."),
        ("See x-anthropic-billing-header: no header", "See x-anthropic-billing-header: no header"),
    ],
)
def test_w17_the_system_text(system: Any, expected: str | None) -> None:
    assert asked(system=system).system == expected


@pytest.mark.parametrize("blocks", [True, False])
def test_c27_a_header_that_changes_changes_nothing(blocks: bool) -> None:
    def of(number: str) -> Any:
        header = BILLING.format(number)
        system = [text(header), text("s")] if blocks else f"{header}\ns"
        found = asked(system=system)
        return found.system, found.messages, found.key, found.cache_salt, found.metadata

    assert of("aaa") == of("bbb")


# --- messages --------------------------------------------------------------------------------


def test_c28_a_system_message_stays_where_it_stands() -> None:
    found = asked(
        system="s",
        messages=[
            *(USER, {"role": "assistant", "content": "yes"}, USER),
            *({"role": "system", "content": "be brief"}, USER),
        ],
    )
    assert [m["role"] for m in found.messages] == ["user", "assistant", "user", "system", "user"]
    assert found.messages[3]["content"] == "be brief"
    assert found.system == "s"


def test_a_system_message_before_all_others_is_the_system_text() -> None:
    found = asked(messages=[{"role": "system", "content": "s"}, USER])
    assert (found.system, found.messages) == ("s", (USER,))


def test_c27_a_billing_header_in_a_message_is_dropped_too() -> None:
    header = {"role": "system", "content": BILLING.format("1")}
    assert asked(messages=[USER, header]).messages == (USER,)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, USER], [{"role": "user", "content": "hi\nhi"}]),
        (
            [{"role": "user", "content": [text("a"), text("b")]}],
            [{"role": "user", "content": "a\nb"}],
        ),
        (
            [USER, {"role": "assistant", "content": [text("a"), text("b")]}, USER],
            [USER, {"role": "assistant", "content": "ab"}, USER],
        ),
        (
            [
                USER,
                {"role": "assistant", "content": "a"},
                {"role": "assistant", "content": "b"},
                USER,
            ],
            [USER, {"role": "assistant", "content": "a\nb"}, USER],
        ),
    ],
)
def test_messages_of_one_role_in_a_row_are_one(messages: Any, expected: Any) -> None:
    assert list(asked(messages=messages).messages) == expected


def test_a_document_s_text_is_read() -> None:
    document = {
        "type": "document",
        "title": "Sky",
        "source": {"type": "text", "media_type": "text/plain", "data": "It is blue."},
    }
    found = asked(messages=[{"role": "user", "content": [document, text("Why?")]}])
    assert found.messages[0]["content"] == "Sky\nIt is blue.\nWhy?"


def test_w17_a_call_and_its_result_are_in_the_template_s_form() -> None:
    found = asked(messages=[USER, CALLED, result()])
    assert found.messages[1:] == (
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "look", "arguments": {"at": "sky"}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": "blue"},
    )


def test_what_is_said_beside_results_follows_them() -> None:
    content = [text("first"), *result()["content"], text("last")]
    found = asked(messages=[USER, CALLED, {"role": "user", "content": content}])
    assert [m["role"] for m in found.messages] == ["user", "assistant", "tool", "user"]
    assert found.messages[3]["content"] == "first\nlast"


def test_w17_an_error_is_a_flag_and_a_marker_in_the_result() -> None:
    message = asked(messages=[USER, CALLED, result("no sky", is_error=True)]).messages[2]
    assert message["is_error"] is True
    assert message["content"] == "[tool error] no sky"


def test_w17_a_result_that_is_no_error_has_no_flag() -> None:
    message = asked(messages=[USER, CALLED, result(is_error=False)]).messages[2]
    assert "is_error" not in message


@pytest.mark.parametrize("signature", [{}, {"signature": ""}, {"signature": "ErUB…"}])
def test_c31_thinking_comes_back_with_any_signature(signature: dict[str, Any]) -> None:
    block = {"type": "thinking", "thinking": "hm", **signature}
    found = asked(messages=[USER, {"role": "assistant", "content": [block, text("yes")]}, USER])
    assert found.messages[1]["reasoning_content"] == "hm"


def test_w17_thinking_that_was_not_shown_comes_back_from_its_signature() -> None:
    block = {"type": "thinking", "thinking": "", "signature": sign("hm é🙂", carry=True)}
    found = asked(messages=[USER, {"role": "assistant", "content": [block, text("yes")]}, USER])
    assert found.messages[1]["reasoning_content"] == "hm é🙂"


@pytest.mark.parametrize("broken", ["", "AAAA", "é", "eJw", "=" * 9])
def test_c31_a_broken_signature_of_ours_is_no_error(broken: str) -> None:
    block = {"type": "thinking", "thinking": "", "signature": "mlxnb.z1." + broken}
    found = asked(messages=[USER, {"role": "assistant", "content": [block, text("yes")]}, USER])
    assert "reasoning_content" not in found.messages[1]


def test_thinking_that_only_its_maker_can_read_says_nothing() -> None:
    block = {"type": "redacted_thinking", "data": "x"}
    found = asked(messages=[USER, {"role": "assistant", "content": [block, text("yes")]}, USER])
    assert found.messages[1] == {"role": "assistant", "content": "yes"}


def two_calls() -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": f"toolu_{n}", "name": "look", "input": {}} for n in "ab"]
    return {"role": "assistant", "content": calls}


def test_w11_results_are_put_in_the_order_of_their_calls() -> None:
    found = asked(messages=[USER, two_calls(), result("B", "toolu_b"), result("A", "toolu_a")])
    assert [m["content"] for m in found.messages[2:]] == ["A", "B"]


@pytest.mark.parametrize(
    "messages",
    [
        [USER, result()],
        [USER, CALLED],
        [USER, CALLED, USER],
        [USER, CALLED, result(), result()],
        [USER, CALLED, result(id="toolu_2")],
        [USER, two_calls(), result("A", "toolu_a")],
        [USER, CALLED, result(), CALLED, result()],
    ],
)
def test_w11_history_that_does_not_fit_together_is_refused(messages: Any) -> None:
    error = refused(messages=messages)
    assert error.param == "messages"
    assert "tool_use" in error.message


def test_w11_the_client_s_own_ids_are_named() -> None:
    assert "toolu_1" in refused(messages=[USER, CALLED]).message


# --- prefill ---------------------------------------------------------------------------------


def test_w17_a_last_answer_is_continued() -> None:
    found = asked(messages=[USER, {"role": "assistant", "content": "The answer is ("}])
    assert found.continues_answer
    assert found.messages[-1] == {"role": "assistant", "content": "The answer is ("}


@pytest.mark.parametrize("content", ["", []])
def test_an_answer_that_begins_with_nothing_is_left_out(content: Any) -> None:
    found = asked(messages=[USER, {"role": "assistant", "content": content}])
    assert not found.continues_answer
    assert found.messages == (USER,)


def test_a_conversation_that_ends_with_its_user_is_not_continued() -> None:
    assert not asked().continues_answer


# --- tools -----------------------------------------------------------------------------------


def test_tools_take_the_template_s_form() -> None:
    (tool,) = asked(tools=[LOOK]).tools
    assert json.loads(tool) == {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look at it.",
            "parameters": {"type": "object"},
        },
    }


def test_tools_of_the_vendor_are_left_out() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert len(asked(tools=[search, LOOK]).tools) == 1


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice("auto")),
        ({"type": "auto"}, ToolChoice("auto")),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto", parallel=False)),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required", (), False)),
        ({"type": "tool", "name": "look"}, ToolChoice("required", ("look",))),
        ({"type": "none"}, ToolChoice("none")),
    ],
)
def test_w17_tool_choice(choice: Any, expected: ToolChoice) -> None:
    assert asked(tools=[LOOK], tool_choice=choice).tool_choice == expected


def test_w17_no_tool_is_shown_where_none_may_be_called() -> None:
    assert asked(tools=[LOOK], tool_choice={"type": "none"}).tools == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [LOOK], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"tools": [LOOK, LOOK]}, "tools[1].name"),
        ({"tools": [{"name": "look"}]}, "tools[0].input_schema"),
    ],
)
def test_tools_that_cannot_be_called_are_refused(fields: Any, param: str) -> None:
    assert refused(**fields).param == param


# --- sampling, thinking, format --------------------------------------------------------------


def test_w17_blank_stops_are_dropped() -> None:
    assert asked(stop_sequences=["", " ", "\n\n", "STOP", " x"]).sampling.stop == ("STOP", " x")


def test_sampling_is_passed_on() -> None:
    sampling = asked(temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, seed=7).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 40)
    assert (sampling.min_p, sampling.seed, sampling.max_tokens) == (0.1, 7, 100)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (None, None)),
        ({"thinking": {"type": "enabled", "budget_tokens": 50}}, (True, 50)),
        ({"thinking": {"type": "adaptive"}}, (None, None)),
        ({"thinking": {"type": "disabled"}}, (False, None)),
        ({"thinking": {"type": "between_tools"}}, (False, None)),
        ({"output_config": {"effort": "low"}}, (None, 1024)),
        ({"output_config": {"effort": "high"}}, (None, None)),
        ({"output_config": {"effort": "low"}, "thinking": {"type": "disabled"}}, (False, None)),
        (
            {
                "output_config": {"effort": "low"},
                "thinking": {"type": "enabled", "budget_tokens": 50},
            },
            (True, 50),
        ),
    ],
)
def test_w17_thinking(fields: Any, expected: tuple[bool | None, int | None]) -> None:
    found = asked(**fields)
    assert (found.thinking, found.thinking_budget) == expected


@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_w17_the_schema_is_passed_on(place: str) -> None:
    format = {"type": "json_schema", "schema": TITLE}
    found = asked(**{place: {"format": format} if place == "output_config" else format})
    assert json.loads(found.schema or "") == TITLE


def test_w22_the_salt_is_passed_on() -> None:
    assert asked(cache_salt="mine").cache_salt == "mine"


# --- titles ----------------------------------------------------------------------------------


def title_request(**fields: Any) -> dict[str, Any]:
    format = {"type": "json_schema", "schema": TITLE}
    whole = {"system": TITLE_SYSTEM, "output_config": {"format": format}, "max_tokens": 32000}
    return {**whole, "thinking": {"type": "adaptive"}, **fields}


def test_w50_a_title_is_made_without_thinking_and_in_few_tokens() -> None:
    found = asked(**title_request())
    assert (found.thinking, found.thinking_budget) == (False, None)
    assert found.sampling.max_tokens == 128


def test_w50_a_title_that_wants_less_gets_less() -> None:
    assert asked(**title_request(max_tokens=20)).sampling.max_tokens == 20


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [LOOK]},
        {"output_config": None},
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        {
            "output_config": {
                "format": {"type": "json_schema", "schema": {**TITLE, "required": []}},
            }
        },
        {"system": "Answer as JSON."},
        {"system": None},
    ],
)
def test_w50_any_other_request_is_no_title(fields: Any) -> None:
    found = asked(**title_request(**fields))
    assert found.thinking is None
    assert found.sampling.max_tokens == 32000


# --- counting --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"system": "s", "tools": [LOOK], "tool_choice": {"type": "any"}},
        {"messages": [USER, CALLED, result(), {"role": "assistant", "content": "It"}]},
        title_request(),
        {"thinking": {"type": "enabled", "budget_tokens": 50}},
    ],
)
def test_w51_what_is_counted_is_what_is_prompted(fields: Any) -> None:
    counted = ask(parse_count(body(**fields)), "someone")
    prompted = asked(**fields)
    for name in (
        *("model", "messages", "system", "tools", "tool_choice", "thinking"),
        *("thinking_budget", "schema", "continues_answer", "caller", "source"),
    ):
        assert getattr(counted, name) == getattr(prompted, name)
