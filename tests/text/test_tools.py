"""Bodies of tool calls, and what is believed of a parser's answer (W38)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mlxnb.text.tools import Grammar, ToolReader, ToolRegion, new_call_id

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, NOW]
TAGS = ("<c>", "</c>")


def reader_of(answer: Any) -> ToolReader:
    """A reader whose parser gives this answer, or raises it."""

    def parse(body: str, tools: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ToolReader(TAGS, parse, TOOLS, new_id=iter(f"call_{n}" for n in range(9)).__next__)


def read(answer: Any, **kwargs: bool) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in reader_of(answer).read("", **kwargs)]


ROME = {"name": "weather", "arguments": {"city": "Rome"}}


def test_ids_are_call_and_24_hex_digits() -> None:
    assert re.fullmatch(r"call_[0-9a-f]{24}", new_call_id())
    assert new_call_id() != new_call_id()


def test_each_call_has_an_id_of_its_own_whatever_the_model_wrote() -> None:
    calls = reader_of([ROME | {"id": "functions.weather:0"}] * 2).read("")
    assert [call.id for call in calls] == ["call_0", "call_1"]


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        pytest.param(ROME, [("weather", {"city": "Rome"})], id="one call"),
        pytest.param(
            [ROME, {"name": "now", "arguments": {}}],
            [("weather", {"city": "Rome"}), ("now", {})],
            id="several",
        ),
        pytest.param(
            ROME | {"arguments": '{"city": "Rome"}'}, [("weather", {"city": "Rome"})], id="a string"
        ),
        pytest.param(
            {"name": "other", "arguments": {"a": 1}}, [("other", {"a": 1})], id="not declared"
        ),
        pytest.param({"name": "now"}, [("now", {})], id="no arguments, and none required"),
        pytest.param(
            {"name": "now", "arguments": {"at": (1, 2), 3: None}},
            [("now", {"at": [1, 2], "3": None})],
            id="as JSON has it",
        ),
    ],
)
def test_what_is_a_call(answer: Any, calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert read(answer) == calls


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ValueError("no"), id="the parser refuses"),
        pytest.param(AttributeError("None has no group"), id="the parser fails"),
        pytest.param(RecursionError(), id="the parser gives up"),
        pytest.param(None, id="nothing"),
        pytest.param([], id="no call"),
        pytest.param("weather", id="a string"),
        pytest.param({}, id="no name"),
        pytest.param(ROME | {"name": ""}, id="empty name"),
        pytest.param(ROME | {"name": " \n"}, id="blank name"),
        pytest.param(ROME | {"name": 7}, id="name is no string"),
        pytest.param(ROME | {"name": "\ud800"}, id="name cannot be sent"),
        pytest.param({"name": "weather"}, id="no arguments, and some required"),
        pytest.param({"name": "other"}, id="no arguments, and not declared"),
        pytest.param(ROME | {"arguments": [1]}, id="a list"),
        pytest.param(ROME | {"arguments": "{"}, id="broken JSON"),
        pytest.param(ROME | {"arguments": "[1]"}, id="JSON, and no object"),
        pytest.param(ROME | {"arguments": "Rome"}, id="no JSON"),
        pytest.param(ROME | {"arguments": {"city": {1}}}, id="what JSON has not"),
        pytest.param(ROME | {"arguments": {"city": float("nan")}}, id="not a number"),
        pytest.param(ROME | {"arguments": {"city": "\ud800"}}, id="half a character"),
        pytest.param({"name": "unknown", "arguments": {"raw": "x"}}, id="the parser's fallback"),
        pytest.param([ROME, {"name": ""}], id="one of two is broken"),
    ],
)
def test_w38_what_is_no_call(answer: Any) -> None:
    assert read(answer) == []


def test_a_call_without_its_tags_needs_a_declared_name() -> None:
    assert read(ROME, declared=True)
    assert not read({"name": "other", "arguments": {"a": 1}}, declared=True)


def test_a_format_that_reads_any_text_needs_a_declared_name() -> None:
    def parse(body: str, tools: Any) -> Any:
        return {"name": body, "arguments": {}}

    parse.__module__ = "mlx_lm.tool_parsers.glm47"
    reader = ToolReader(TAGS, parse, TOOLS)
    assert [call.name for call in reader.read("now")] == ["now"]
    assert reader.read("hello") == []


def test_the_parser_gets_body_and_tools() -> None:
    got = []

    def parse(body: str, tools: Any) -> Any:
        got.append((body, tools))
        return json.loads(body)

    ToolReader(TAGS, parse, TOOLS).read(json.dumps(ROME))
    assert got == [(json.dumps(ROME), TOOLS)]


def test_a_function_of_no_module_has_no_grammar() -> None:
    assert Grammar.of(None) == Grammar.of(json.loads) == Grammar()


@pytest.mark.parametrize("size", [1, 2, 50])
def test_a_region_ends_behind_its_end_tag(size: int) -> None:
    region, stream = ToolRegion("<c>", "</c>"), "a</b</c>rest"
    for at in range(0, len(stream), size):
        if region.feed(stream[at : at + size]):
            break
    assert (region.body, region.raw) == ("a</b", "<c>a</b</c>")
    assert region.rest == stream[8 : at + size]


def test_a_region_without_end_tag_ends_with_the_stream() -> None:
    region = ToolRegion("[C]", "")
    assert not region.feed("a") and not region.feed("b")
    region.flush()
    assert (region.body, region.raw) == ("ab", "[C]ab")


def test_half_an_end_tag_belongs_to_the_body_in_the_end() -> None:
    region = ToolRegion("<c>", "</c>")
    region.feed("a</")
    region.flush()
    assert region.raw == "<c>a</"


@pytest.mark.parametrize("pieces", [["\n", " {", "x"], ["\n {x"]])
def test_a_body_that_begins_as_it_can_is_held(pieces: list[str]) -> None:
    region = ToolRegion("<c>", "</c>", ["{", "["])
    assert not any(region.feed(piece) for piece in pieces)


def test_a_body_that_begins_otherwise_proves_the_tag_false_at_once() -> None:
    region = ToolRegion("<c>", "</c>", ["<function=", "<invoke"])
    assert not region.feed("\n") and not region.feed("<in")
    assert region.feed("put>") and region.false
    assert region.rest == "\n<input>"


def test_the_tags_of_a_bare_call_belong_to_its_body() -> None:
    region = ToolRegion("<f=", "</f>", ["now"], bare=True)
    assert region.feed("now></f>") and region.body == "<f=now></f>"
