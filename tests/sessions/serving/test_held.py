"""Answers of doors that are held to schemas and tool choices."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from scripted import THINKING

from mlxnb.engine.events import Event, Piece
from mlxnb.engine.sampling import Sampling
from mlxnb.errors import BadSchema
from mlxnb.sessions.ask import ToolChoice

from .world import World, user

Talker = Callable[..., str]

CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}


def tool(name: str, parameters: Any = CITY, **more: Any) -> str:
    function = {"name": name, "parameters": parameters, **more}
    return json.dumps({"type": "function", "function": function})


TOOLS = (tool("weather"), tool("time", {"type": "object", "properties": {}}))
ASKS = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def kinds(events: list[Event]) -> list[str]:
    found = [event.kind for event in events if isinstance(event, Piece)]
    return [kind for at, kind in enumerate(found) if at == 0 or found[at - 1] != kind]


def arguments(events: list[Event]) -> str:
    pieces = (e for e in events if isinstance(e, Piece) and e.kind == "tool_arguments")
    return "".join(piece.text for piece in pieces)


def test_a_text_conforms_to_its_schema_whatever_the_model_says(
    world: World, talker: Talker
) -> None:
    talker("Rome is nice.")
    turn = world.begin("a", schema=json.dumps(CITY)).wait()
    jsonschema.validate(json.loads(turn.text), CITY)
    assert turn.finish_reason == "stop"


def test_a_model_may_think_before_it_conforms(world: World, talker: Talker) -> None:
    talker('Hm.\n</think>\n\n{"city": "Rome"}', template=THINKING)
    turn = world.begin("a", schema=json.dumps(CITY)).wait()
    assert turn.reasoning == "Hm.\n"
    assert json.loads(turn.text) == {"city": "Rome"}


@pytest.mark.parametrize("name", ["weather", "time"])
def test_a_named_tool_is_called_whatever_the_model_says(
    world: World, talker: Talker, name: str
) -> None:
    """W16, W17"""
    talker("No.")
    choice = ToolChoice("required", (name,), parallel=False)
    turn = world.begin("a", tools=TOOLS, tool_choice=choice).wait()
    assert ([c.name for c in turn.tool_calls], turn.text) == ([name], "")
    assert turn.finish_reason == "tool_calls"


def test_a_call_is_told_while_it_is_generated(world: World, talker: Talker) -> None:
    """W32"""
    talker(f"I look.{ASKS}")
    following = world.begin("a", tools=TOOLS)
    (call,) = following.wait().tool_calls
    events = following.events
    assert kinds(events) == ["text", "tool_start", "tool_arguments", "tool_call"]
    assert json.loads(arguments(events)) == call.arguments == {"city": "Rome"}
    assert len([e for e in events if isinstance(e, Piece) and e.kind == "tool_arguments"]) > 2


def test_a_call_that_breaks_its_schema_is_mended(world: World, talker: Talker) -> None:
    talker('<tool_call>\n{"name": "weather", "arguments": {"town": "Rome"}}\n</tool_call>')
    (call,) = world.begin("a", tools=TOOLS).wait().tool_calls
    jsonschema.validate(call.arguments, CITY)


def test_a_call_that_is_cut_off_is_begun_and_never_ended(world: World, talker: Talker) -> None:
    talker(ASKS)
    following = world.begin("a", tools=TOOLS, sampling=Sampling(max_tokens=38))
    turn = following.wait()
    assert turn.finish_reason == "length"
    assert (turn.tool_calls, turn.text) == ([], "")
    assert "tool_start" in kinds(following.events)


def test_one_call_at_most_where_no_more_are_allowed(world: World, talker: Talker) -> None:
    talker(f"{ASKS}\n{ASKS}")
    both = world.begin("a", tools=TOOLS).wait()
    one = world.begin("a", tools=TOOLS, tool_choice=ToolChoice(parallel=False)).wait()
    assert (len(both.tool_calls), len(one.tool_calls)) == (2, 1)


def test_reasoning_is_cut_by_its_budget(world: World, talker: Talker) -> None:
    talker("one two three four five six</think>Yes.", template=THINKING)
    turn = world.begin("a", thinking_budget=5).wait()
    assert turn.usage.reasoning_tokens == 6  # the end tag is one
    assert len(turn.reasoning) < len("one two three four five six")


def test_a_schema_that_is_none_is_refused_before_a_load(world: World, talker: Talker) -> None:
    """W13"""
    name = talker("One.", loaded=False)
    with pytest.raises(BadSchema, match=r"properties\.a"):
        world.begin("a", schema='{"properties": {"a": {"type": "nonsense"}}}')
    assert name not in world.engine.core.names()


@pytest.mark.parametrize("strict", [True, False])
def test_a_schema_that_cannot_be_enforced_matters_where_it_must(
    world: World, talker: Talker, strict: bool
) -> None:
    talker('<tool_call>\n{"name": "odd", "arguments": {"x": 1}}\n</tool_call>')
    odd = tool("odd", {"type": "object", "if": {"required": ["x"]}}, strict=strict)
    if strict:
        with pytest.raises(BadSchema, match=r"tools\[0\]\.parameters"):
            world.begin("a", tools=(odd,))
    else:
        (call,) = world.begin("a", tools=(odd,)).wait().tool_calls
        assert call.arguments == {"x": 1}


def test_an_answer_that_the_client_began_goes_on_in_its_form(world: World, talker: Talker) -> None:
    talker("no")
    begun = {"role": "assistant", "content": '{"city": "P'}
    following = world.begin(
        user("a"), begun, schema=json.dumps(CITY), continues_answer=True, source="messages"
    )
    following.wait()
    assert json.loads('{"city": "P' + following.text) == {"city": "Paris"}


def test_a_held_answer_beside_a_free_one_changes_nothing_of_it(
    world: World, talker: Talker
) -> None:
    talker("A longer answer, which goes on for a while beside the other one.")
    alone = world.begin("a").wait().tokens
    free, held = world.begin("a"), world.begin("b", schema=json.dumps(CITY))
    assert free.wait().tokens == alone
    jsonschema.validate(json.loads(held.wait().text), CITY)
