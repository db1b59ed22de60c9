"""Answers that have a form: values of a schema, and calls that must be made."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel, field_validator

from mlxnb.errors import BadSchema, InvalidOption
from mlxnb.sessions.local import LocalEngine

Say = Callable[..., str]
PEAR = '{"name": "pear", "ripe": true}'
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "count": {"type": "integer"}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}
ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"enum": [1, 2]}, "b": {"enum": [3, 4]}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}


class Fruit(BaseModel):
    name: Literal["apple", "pear"]
    ripe: bool


class Strict(Fruit):
    @field_validator("ripe")
    @classmethod
    def never(cls, value: bool) -> bool:
        raise KeyError("not a word")


def test_an_answer_is_a_value_of_the_schema(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, seed=1, temperature=1.0)
    turn = session.send("what have you got?", schema=SCHEMA, max_tokens=200)
    assert turn.finish_reason == "stop" and turn.invalid is None
    assert turn.parsed == json.loads(turn.text)
    assert turn.parsed["colour"] in ("red", "green") and isinstance(turn.parsed["count"], int)
    free = session.send("and now?", max_tokens=5)
    assert (free.parsed, free.invalid) == (None, None)


def test_an_answer_is_an_object_of_the_pydantic_model(engine: LocalEngine, say: Say) -> None:
    say(PEAR)
    turn = engine.session().send("what is there?", schema=Fruit, n=2)
    assert len(turn.choices) == 2
    for each in turn.choices:
        assert each.parsed == Fruit(name="pear", ripe=True)
        assert each.parsed is each.parsed


def test_a_model_of_fields_has_no_others(engine: LocalEngine, say: Say) -> None:
    """Unless it says that it has."""

    class Open(Fruit, extra="allow"):
        pass

    more = PEAR.replace("}", ', "sweet": true}')
    say(more, more)
    session = engine.session()
    closed, open_ = (session.send("what is there?", schema=kind) for kind in (Fruit, Open))
    assert closed.parsed == Fruit(name="pear", ripe=True)
    assert open_.parsed.model_extra == {"sweet": True}


def test_an_answer_that_is_cut_has_no_value_and_says_why(engine: LocalEngine, tiny: str) -> None:
    turn = engine.session(tiny).send("what is there?", schema=Fruit, max_tokens=2)
    assert turn.parsed is None
    assert turn.invalid == "the answer did not come to its end: length"


def test_a_validator_that_raises_anything_leaves_a_reason(engine: LocalEngine, say: Say) -> None:
    say(PEAR, "nothing")
    session = engine.session()
    turn = session.send("what is there?", schema=Strict)
    assert turn.parsed is None
    assert turn.invalid == "KeyError: 'not a word'"
    assert session.send("and now?").text == "nothing"


@pytest.mark.parametrize("schema", [5, "text", [SCHEMA], {"type": "nothing"}, {"a": {1}}, dict])
def test_what_is_no_schema_is_refused_and_nothing_is_lost(
    engine: LocalEngine, tiny: str, schema: Any
) -> None:
    session = engine.session(tiny)
    with pytest.raises(BadSchema, match="schema"):
        session.send("hi", schema=schema)
    assert not session.answering and session.turns == 0
    assert session.send("hi", max_tokens=2).finish_reason


def test_a_tool_that_must_be_called_is(engine: LocalEngine, tiny: str) -> None:
    for choice in ("required", "add"):
        session = engine.session(tiny, tools=[ADD], temperature=1.0, seed=3)
        turn = session.send("hello", tool_choice=choice)
        (call, *_) = turn.tool_calls
        assert call.name == "add"
        assert call.arguments["a"] in (1, 2) and call.arguments["b"] in (3, 4)


@pytest.mark.parametrize("choice", ["another", "", 5, ["add"]])
def test_a_tool_that_is_not_there_cannot_be_chosen(
    engine: LocalEngine, tiny: str, choice: Any
) -> None:
    session = engine.session(tiny, tools=[ADD])
    with pytest.raises(InvalidOption, match="tool_choice"):
        session.send("hello", tool_choice=choice)
    assert session.turns == 0 and not session.answering


def test_tools_that_may_not_be_called_are_not_shown(engine: LocalEngine, tiny: str) -> None:
    one, two = engine.session(tiny, tools=[ADD]), engine.session(tiny)
    turns = [
        one.send("hello", tool_choice="none", max_tokens=1),
        two.send("hello", max_tokens=1),
    ]
    assert turns[0].prompt_tokens == turns[1].prompt_tokens
    assert one.send("hello", max_tokens=1).prompt_tokens > 2 * turns[0].prompt_tokens
