"""Request bodies to begin with, and machines over answers to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlxnb.engine.events import Event as EngineEvent
from mlxnb.records.turn import Turn
from mlxnb.sessions.ask import Ask
from mlxnb.wire import Event
from mlxnb.wire.chat import Machine, ask, parse
from wire.answers import FakeAnswer

LOOK = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}},
}
USER = {"role": "user", "content": "hi"}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "blue"}


def called(*ids: str, arguments: str = '{"at": "sky"}') -> dict[str, Any]:
    """An answer that is calls."""
    calls = [
        {"id": i, "type": "function", "function": {"name": "look", "arguments": arguments}}
        for i in ids or ("call_1",)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def body(**fields: Any) -> dict[str, Any]:
    """A request that is right, with these fields."""
    return {"model": "gpt-x", "messages": [USER], **fields}


def asked(**fields: Any) -> Ask:
    """What such a request asks."""
    return ask(parse(body(**fields)), "someone")


def machine(answer: FakeAnswer | None = None, **fields: Any) -> Machine:
    """A machine for a request with these fields."""
    return Machine(parse(body(**fields)), answer or FakeAnswer())


def run(made: Machine, events: Iterable[EngineEvent], turn: Turn) -> list[Event]:
    """All that a machine sends."""
    sent = made.opening()
    for event in events:
        sent += made.feed(event)
    return sent + made.finish(turn)
