"""One answer, separated while it is generated (W30, W35–W39)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mlxnb.text.answer import AnswerMachine, Piece

THINK = ("<think>", "</think>")
CALL = ("<call>", "</call>")
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("f", "g")
]
F = '{"name": "f", "arguments": {"x": 1}}'
G = '{"name": "g", "arguments": {}}'


def parse(body: str, tools: Any) -> Any:
    return json.loads(body)


def machine(**changed: Any) -> AnswerMachine:
    options: dict[str, Any] = {
        "think": THINK,
        "starts_in_reasoning": False,
        "tool_tags": CALL,
        "parse_tool": parse,
        "tools": TOOLS,
        "stops": [],
    }
    return AnswerMachine(**options | changed)


def plain(**changed: Any) -> AnswerMachine:
    """A model that neither reasons nor calls tools."""
    return machine(
        **{"think": None, "tool_tags": None, "parse_tool": None, "tools": None} | changed
    )


def run(answer: AnswerMachine, raw: str, *, size: int = 2, cut: bool = False) -> AnswerMachine:
    pieces: list[Piece] = []
    for at in range(0, len(raw), size):
        pieces += answer.feed(raw[at : at + size])
    pieces += answer.finish(cut)
    for kind, whole in (("text", answer.text), ("reasoning", answer.reasoning)):
        assert "".join(piece.text for piece in pieces if piece.kind == kind) == whole
    assert [piece.call for piece in pieces if piece.kind == "tool_call"] == answer.tool_calls
    assert all(piece.text or piece.call for piece in pieces)
    return answer


def result(answer: AnswerMachine) -> tuple[str, str, list[str]]:
    return answer.reasoning, answer.text, [call.name for call in answer.tool_calls]


# --- reasoning -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "reasoning", "text"),
    [
        pytest.param("<think>why</think>so", "why", "so", id="a block"),
        pytest.param("<think>why</think>\n\nso\n", "why", "so\n", id="blank lines behind it"),
        pytest.param("<think>why</think>\n    so", "why", "    so", id="indentation"),
        pytest.param("<think>why</think> so", "why", "so", id="a space behind it"),
        pytest.param("\n<think>why</think>\nso", "why", "so", id="blank lines before it"),
        pytest.param("\n  <think>why</think>so", "why", "so", id="indentation before it"),
        pytest.param("<think>\n\n</think>\n\nso", "", "so", id="an empty block"),
        pytest.param("<think>\nwhy\n</think>so", "\nwhy\n", "so", id="blank lines in it stay"),
        pytest.param("a <think>b</think>\n\nc", "b", "a \n\nc", id="in the middle"),
        pytest.param("<think>a</think><think>b</think>\nc", "ab", "c", id="two blocks"),
        pytest.param("why</think>\n\nso", "", "why\n\nso", id="an end tag alone"),
        pytest.param("\n</think>\n\nso", "", "so", id="an end tag at the beginning"),
        pytest.param("\n\nso", "", "\n\nso", id="no block: no byte changes"),
        pytest.param("<think>why", "why", "", id="no end"),
        pytest.param("<think>why</thi", "why</thi", "", id="half an end tag"),
        pytest.param("<<think>a</think>b", "a", "<b", id="a false start before it"),
    ],
)
def test_w30_reasoning(raw: str, reasoning: str, text: str) -> None:
    assert result(run(machine(), raw)) == (reasoning, text, [])


def test_w30_reasoning_that_the_prompt_opened() -> None:
    answer = machine(starts_in_reasoning=True)
    assert answer.in_reasoning
    assert result(run(answer, "why</think>\n\nso")) == ("why", "so", [])
    assert not answer.in_reasoning


def test_in_reasoning_follows_the_tags() -> None:
    answer, seen = machine(), []
    for piece in ("a", "<think>", "b", "<call>", "</think>", "c"):
        answer.feed(piece)
        seen.append(answer.in_reasoning)
    assert seen == [False, True, True, True, False, False]


# --- plain models ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw", ["\n\n Hi \n", " ", "\n", "<think>a</think>", "<call>{}</call>", "a<", "🙂\u200b"]
)
def test_a_plain_model_s_bytes_are_its_text(raw: str) -> None:
    assert result(run(plain(), raw)) == ("", raw, [])


def test_c38_the_first_token_is_shown_at_once() -> None:
    assert plain().feed("Hi") == [Piece("text", "Hi")]
    assert machine(stops=["STOP"]).feed("Hi") == [Piece("text", "Hi")]


# --- blank text ------------------------------------------------------------------------------


def test_w35_blank_text_is_prefixed_to_the_first_real_text() -> None:
    answer = machine()
    assert answer.feed("\n") == answer.feed(" ") == []
    assert answer.feed("a") == [Piece("text", "\n a")]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        pytest.param(f"\n\n<call>{F}</call>", "", id="before a call"),
        pytest.param(f"<call>{F}</call>\n", "", id="before the end"),
        pytest.param(f"Hi\n<call>{F}</call>\n<call>{G}</call>\n", "Hi\n", id="between calls"),
        pytest.param(f"Hi<call>{F}</call>\nyou", "Hi\nyou", id="before text behind a call"),
        pytest.param(f"<think>a</think>\n<call>{F}</call>\n", "", id="behind reasoning"),
        pytest.param("\n \n", "", id="alone"),
    ],
)
def test_w35_blank_text_is_dropped_before_a_call_and_the_end(raw: str, text: str) -> None:
    assert run(machine(), raw).text == text


def test_w35_blank_text_is_kept_at_a_stop_match() -> None:
    assert run(machine(stops=["STOP"]), "\n STOP").text == "\n "


# --- tool calls ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "text", "calls"),
    [
        pytest.param(f"<call>{F}</call>", "", ["f"], id="a call"),
        pytest.param(f"Hi <call>{F}</call>", "Hi ", ["f"], id="behind text"),
        pytest.param(f"<call>{F}</call>bye", "bye", ["f"], id="before text"),
        pytest.param(f"<call>{F}</call> and <call>{G}</call>", " and ", ["f", "g"], id="two"),
        pytest.param(f"<call>[{F},{G}]</call>", "", ["f", "g"], id="two in one"),
        pytest.param(f"<call>{F}", "", ["f"], id="ended by the model without its end tag"),
        pytest.param(f"<call>{F}</call>\n</call>", "", ["f"], id="its end tag twice"),
        pytest.param(f"<call>{F}</call>a</call>", "a</call>", ["f"], id="an end tag in text"),
        pytest.param("a</call>b", "a</call>b", [], id="an end tag alone"),
        pytest.param("<call>{</call>b", "<call>{</call>b", [], id="broken"),
        pytest.param(f"<call>{{</call><call>{F}</call>", "<call>{</call>", ["f"], id="once broken"),
        pytest.param("<call>{", "<call>{", [], id="broken off"),
        pytest.param(f"<call>{F}</ca", f"<call>{F}</ca", [], id="broken off in its end tag"),
        pytest.param(f"<<call>{F}</call>", "<", ["f"], id="behind a false start"),
        pytest.param(f"<cal<call>{F}</call>", "<cal", ["f"], id="behind half a tag"),
        pytest.param('<call>{"name": ""}</call>', '<call>{"name": ""}</call>', [], id="no name"),
    ],
)
def test_w38_tool_calls(raw: str, text: str, calls: list[str]) -> None:
    assert result(run(machine(), raw)) == ("", text, calls)


def test_w38_a_false_tag_is_let_go_at_once_and_streaming_goes_on() -> None:
    answer = machine()
    assert answer.feed("a<cal") == [Piece("text", "a")]
    assert answer.feed("f") == [Piece("text", "<calf")]


def test_w38_a_body_that_can_be_no_call_is_let_go_at_once() -> None:
    def parse_json(body: str, tools: Any) -> Any:
        return json.loads(body)

    parse_json.__module__ = "mlx_lm.tool_parsers.json_tools"
    answer = machine(parse_tool=parse_json)
    pieces = answer.feed("The <call>` tag")
    assert "".join(piece.text for piece in pieces) == "The <call>` tag"
    assert [piece.kind for piece in answer.feed(f" and <call>\n{F}</call>")] == [
        "text",
        "tool_call",
    ]


def test_w38_a_call_cut_off_is_text_even_if_it_would_parse() -> None:
    assert result(run(machine(), f"a<call>{F}", cut=True)) == ("", f"a<call>{F}", [])
    whole = machine(tool_tags=("[CALL]", ""))
    assert result(run(whole, f"a[CALL]{F}", cut=True)) == ("", f"a[CALL]{F}", [])


def test_w38_a_call_without_end_tag_ends_with_the_answer() -> None:
    assert result(run(machine(tool_tags=("[CALL]", "")), f"a[CALL]{F}")) == ("", "a", ["f"])


def test_think_tags_inside_a_call_belong_to_it() -> None:
    body = '{"name": "f", "arguments": {"code": "<think></think>"}}'
    answer = run(machine(), f"<call>{body}</call>")
    assert answer.tool_calls[0].arguments == {"code": "<think></think>"}
    assert (answer.reasoning, answer.text) == ("", "")


def test_w30_think_tags_in_the_text_of_a_broken_call_never_come_out() -> None:
    raw = "<call>{<think>a</call>b</think>c"
    assert result(run(machine(), raw)) == ("a</call>b", "<call>{c", [])


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (False, (f"a<call>{F}</call>b", "c", [])),
        (True, ("a", "b\nc", ["f"])),
    ],
)
def test_a_tool_tag_inside_reasoning(allowed: bool, expected: tuple[str, str, list[str]]) -> None:
    answer = machine(tool_in_reasoning=allowed)
    assert result(run(answer, f"<think>a<call>{F}</call>b</think>\nc")) == expected


def test_a_broken_call_inside_reasoning_is_reasoning() -> None:
    answer = machine(tool_in_reasoning=True)
    raw = "<think>a<call>{</call>b</think>\nc"
    assert result(run(answer, raw)) == ("a<call>{</call>b", "c", [])


def test_ids_are_made_by_the_given_factory() -> None:
    answer = run(machine(new_id=iter("12").__next__), f"<call>[{F},{G}]</call>")
    assert [call.id for call in answer.tool_calls] == ["1", "2"]
    made = run(machine(), f"<call>{F}</call>").tool_calls[0].id
    assert re.fullmatch("call_[0-9a-f]{24}", made)


def test_a_call_is_a_piece_of_its_own_behind_its_text() -> None:
    answer = machine(new_id=lambda: "1")
    kinds = [piece.kind for piece in answer.feed(f"Hi<call>{F}</call>you")]
    assert kinds == ["text", "tool_call", "text"]


# --- without tools ---------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize("think", [None, THINK])
@pytest.mark.parametrize(
    ("raw", "text", "suppressed"),
    [
        (f"a <call>{F}</call> b", f"a {F} b", True),
        ("a <call>b", "a b", True),
        ("a </call> b", "a </call> b", False),
        ("a </call> <call>b</call> c </call>", "a </call> b c </call>", True),
        ("a <cal b", "a <cal b", False),
    ],
)
def test_w37_without_tools_markup_loses_its_tags(
    tools: Any, think: Any, raw: str, text: str, suppressed: bool
) -> None:
    answer = run(machine(tools=tools, think=think), raw)
    assert (answer.text, answer.tool_calls) == (text, [])
    assert answer.suppressed_markup is suppressed


def test_w37_the_text_between_the_tags_is_not_held() -> None:
    answer = machine(tools=None)
    answer.feed("<call>")
    assert answer.feed("a") == [Piece("text", "a")]


def test_w37_think_tags_between_the_tags_are_still_tags() -> None:
    answer = run(machine(tools=None), "<call>a<think>b</think>c</call>")
    assert (answer.reasoning, answer.text) == ("b", "ac")


def test_w37_blank_lines_between_reasoning_and_a_tag_go_too() -> None:
    answer = run(machine(tools=None, starts_in_reasoning=True), "a</think>\n  <call>b</call>")
    assert (answer.reasoning, answer.text) == ("a", "b")


def test_with_tools_nothing_is_suppressed() -> None:
    assert not run(machine(), f"<call>{F}</call><call>{{</call>").suppressed_markup


# --- stop sequences --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "stops", "text", "matched"),
    [
        pytest.param("go STOP on", ["STOP"], "go ", "STOP", id="in text"),
        pytest.param("<think>STOP</think>on", ["STOP"], "on", None, id="not in reasoning"),
        pytest.param("<think>a</think>\n\nb\nc", ["\n"], "b", "\n", id="not in what is cut off"),
        pytest.param("ST<think>a</think>OP b", ["STOP"], "", "STOP", id="around reasoning"),
        pytest.param('<call>{"STOP"</call>a', ["STOP"], '<call>{"', "STOP", id="a broken call"),
        pytest.param("a<thi", ["<"], "a", "<", id="a false tag let go by the end"),
        pytest.param("a<this", ["<th"], "a", "<th", id="a false tag"),
        pytest.param("a <call>{</call>", ["{</call>"], "a <call>", "{</call>", id="a false call"),
        pytest.param("STOP", ["STOP"], "", "STOP", id="nothing before it"),
        pytest.param("ab", ["ab", "abc"], "", "ab", id="the end decides"),
        pytest.param("a ST", ["STOP"], "a ST", None, id="half of one"),
    ],
)
def test_w39_stops_see_visible_text_alone(
    raw: str, stops: list[str], text: str, matched: str | None
) -> None:
    answer = run(machine(stops=stops), raw)
    assert (answer.text, answer.stop_sequence) == (text, matched)


def test_w39_arguments_are_not_searched() -> None:
    body = '{"name": "f", "arguments": {"x": "STOP"}}'
    answer = run(machine(stops=["STOP", "call"]), f"<call>{body}</call>")
    assert (answer.stop_sequence, len(answer.tool_calls)) == (None, 1)


def test_w36_after_a_match_nothing_comes() -> None:
    answer = machine(stops=["."])
    answer.feed("a.b")
    assert answer.feed(f"<think>c</think>d<call>{F}</call>") == answer.finish(False) == []
    assert result(answer) == ("", "a", [])


def test_w36_after_a_match_in_a_broken_call_nothing_comes() -> None:
    answer = run(machine(stops=["STOP"]), "<call>STOP<think>a</call>b")
    assert result(answer) == ("", "<call>", [])


def test_w36_after_a_call_stops_are_not_sought() -> None:
    answer = run(machine(stops=["STOP"]), f"ST<call>{F}</call>OP STOP")
    assert (answer.text, answer.stop_sequence) == ("STOP STOP", None)
    assert len(answer.tool_calls) == 1


def test_w36_a_match_that_a_call_decides_comes_before_it() -> None:
    answer = run(machine(stops=["ab", "abc"]), f"xab<call>{F}</call>")
    assert result(answer) == ("", "x", [])
    assert answer.stop_sequence == "ab"


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("go STOP on", "go "),
        ("<think>a</think>\n\nb STOP", "<think>a</think>\n\nb "),
        ("<think>a</think>\n\nSTOP", "<think>a</think>\n\n"),
        ("a<think>b</think>STOP", "a<think>b</think>"),
        ("aST<think>b</think>OP", "a"),
        ("a<call>{STOP</call>", "a<call>{"),
        ("go on", "go on"),
    ],
)
def test_w36_where_the_raw_text_was_cut_is_known(raw: str, kept: str) -> None:
    answer = run(machine(stops=["STOP"]), raw)
    assert raw[: answer.visible_raw_length] == kept


# --- the rest --------------------------------------------------------------------------------


def test_markers_are_left_out_of_text() -> None:
    answer = run(machine(markers=["<|open|>", "<|close|>"]), "<|open|>a<|close|> <|o")
    assert answer.text == "a <|o"


def test_w37_a_marker_between_tool_tags_leaves_them_a_pair() -> None:
    answer = run(machine(tools=None, markers=["<mark>"]), "<call>a<mark>b</call>c")
    assert answer.text == "abc"


def test_the_end_comes_once() -> None:
    answer = machine()
    answer.feed("a<")
    assert answer.finish(False) == [Piece("text", "<")]
    assert answer.finish(True) == answer.feed("b") == []
