"""Request bodies to begin with."""

from __future__ import annotations

from typing import Any

from mlxnb.sessions.ask import Ask
from mlxnb.wire.messages import ask, parse

LOOK = {"name": "look", "description": "Look at it.", "input_schema": {"type": "object"}}
USER = {"role": "user", "content": "hi"}
CALLED = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}}],
}


def body(**fields: Any) -> dict[str, Any]:
    """A request that is right, with these fields; ``None`` leaves one out."""
    whole = {"model": "claude-x", "max_tokens": 100, "messages": [USER], **fields}
    return {name: value for name, value in whole.items() if value is not None}


def result(content: Any = "blue", id: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    """A user's message that is one tool result."""
    block = {"type": "tool_result", "tool_use_id": id, "content": content, **fields}
    return {"role": "user", "content": [block]}


def asked(**fields: Any) -> Ask:
    """What such a request asks."""
    return ask(parse(body(**fields)), "someone")
