"""Messages in the form that chat templates take."""

from __future__ import annotations

import json
from typing import Any

from mlxnb.errors import InvalidOption
from mlxnb.records.turn import Turn

Message = dict[str, Any]
"""``role`` (system | user | assistant | tool), ``content`` (a string), and for an assistant
``reasoning_content`` and ``tool_calls``, for a tool ``name`` and ``tool_call_id``."""


def answer_message(turn: Turn) -> Message:
    """What the model said: text, reasoning and calls."""
    message: Message = {"role": "assistant", "content": turn.text}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in turn.tool_calls
        ]
    return message


def result_message(call_id: str, name: str, content: Any, is_error: bool) -> Message:
    """The result of a tool call; what is no string is written as JSON.

    Raises
    ------
    InvalidOption
        It has no JSON form.
    """
    text = content if isinstance(content, str) else _json(content)
    if is_error:
        text = f"[tool error] {text}"
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}


def _json(content: Any) -> str:
    try:
        return json.dumps(content, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOption(f"a tool's result is text or plain JSON: {error}") from None
