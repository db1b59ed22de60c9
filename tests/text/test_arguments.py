"""Calls whose arguments are told while they are generated."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from mlxnb.text.answer import AnswerMachine, Piece
from mlxnb.text.envelope import PLAIN_TAGS, ArgumentsReader, Envelope, parse_json

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("get", "get_all")
]
HEADS = Envelope.of(parse_json).heads(["get", "get_all"])


def machine(claims: Iterable[bool] = (), **more: Any) -> AnswerMachine:
    claimed = itertools.chain(claims, itertools.repeat(True))
    numbers = itertools.count(1)
    return AnswerMachine(
        **{
            "think": ("<think>", "</think>"),
            "starts_in_reasoning": False,
            "tool_tags": PLAIN_TAGS,
            "parse_tool": parse_json,
            "tools": TOOLS,
            "stops": (),
            "claim": lambda: next(claimed),
            "new_id": lambda: f"call_{next(numbers)}",
            **more,
        }
    )


def told(machine: AnswerMachine, pieces: Iterable[str], cut: bool = False) -> list[Piece]:
    out = [piece for text in pieces for piece in machine.feed(text)]
    return out + machine.finish(cut=cut)


def call(arguments: str, name: str = "get") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def merged(pieces: list[Piece]) -> list[tuple[str, str]]:
    """Kinds with their texts, joined where one kind follows itself."""
    groups = itertools.groupby(pieces, key=lambda piece: piece.kind)
    return [
        (kind, "".join(p.text or (p.call.name if p.call else "") for p in group))
        for kind, group in groups
    ]


@pytest.mark.parametrize(
    "arguments",
    ["{}", '{"a": 1}', '{"a": {"b": [1, {"c": "}"}]}}', '{"a": "\\"}{["}', '{"a": "é😀"}'],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_arguments_are_the_json_object_however_it_is_cut(arguments: str, size: int) -> None:
    reader = ArgumentsReader(HEADS)
    body = f'\n{{"name": "get", "arguments": {arguments}}}\n'
    cuts = [body[at : at + size] for at in range(0, len(body), size)]
    assert "".join(map(reader.feed, cuts)) == arguments
    assert reader.name == "get"


def test_a_name_is_known_when_all_of_it_is_there() -> None:
    reader = ArgumentsReader(HEADS)
    assert (reader.feed('{"name": "get'), reader.name) == ("", None)
    assert (reader.feed('_all", "arguments": {"'), reader.name) == ('{"', "get_all")


def test_what_begins_otherwise_is_no_call() -> None:
    reader = ArgumentsReader(HEADS)
    assert reader.feed('{"arguments": {}, "name": "get"}') == ""
    assert reader.name is None


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_call_is_announced_told_and_ended(size: int) -> None:
    text = "<think>Hm.</think>I look.\n" + call('{"a": 1}')
    cuts = [text[at : at + size] for at in range(0, len(text), size)]
    pieces = told(machine(), cuts)
    assert merged(pieces) == [
        ("reasoning", "Hm."),
        ("text", "I look.\n"),
        ("tool_start", "get"),
        ("tool_arguments", '{"a": 1}'),
        ("tool_call", "get"),
    ]
    ids = {piece.call.id for piece in pieces if piece.call is not None}
    assert ids == {"call_1"}


def test_each_call_has_an_id_of_its_own() -> None:
    pieces = told(machine(), [call("{}"), call('{"b": 2}', "get_all")])
    ended = [piece.call for piece in pieces if piece.kind == "tool_call"]
    assert [(c.name, c.arguments) for c in ended if c] == [("get", {}), ("get_all", {"b": 2})]
    assert len({c.id for c in ended if c}) == 2


def test_a_call_that_nobody_claims_is_held() -> None:
    pieces = told(machine(claims=[False]), call('{"a": 1}'))
    assert [piece.kind for piece in pieces] == ["tool_call"]


def test_a_told_call_that_is_cut_off_is_neither_call_nor_text() -> None:
    answer = machine()
    pieces = told(answer, call('{"a": "long')[:-14], cut=True)
    assert merged(pieces)[-1][0] == "tool_arguments"
    assert (answer.text, answer.tool_calls) == ("", [])


def test_a_call_that_is_cut_off_before_its_name_is_text() -> None:
    answer = machine()
    told(answer, '<tool_call>{"name": "ge', cut=True)
    assert answer.text == '<tool_call>{"name": "ge'


def test_stops_are_not_sought_in_a_told_call() -> None:
    answer = machine(stops=["1"])
    pieces = told(answer, ["Look ", *call('{"a": 1}')])
    assert answer.stop_sequence is None
    assert merged(pieces)[-1] == ("tool_call", "get")


@pytest.mark.parametrize("claimed", [True, False])
def test_an_answer_ends_with_the_last_call_that_it_may_make(claimed: bool) -> None:
    answer = machine(claims=itertools.repeat(claimed), max_calls=1)
    told(answer, [call("{}"), "and", call("{}", "get_all")])
    assert [c.name for c in answer.tool_calls] == ["get"]
    assert (answer.text, answer.complete) == ("", True)
