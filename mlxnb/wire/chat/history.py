"""A chat's messages in the form that chat templates take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mlxnb.sessions.messages import Message, result_message
from mlxnb.wire import tool_history
from mlxnb.wire.chat import messages as given
from mlxnb.wire.errors import invalid


def history(messages: Sequence[given.Message]) -> list[Message]:
    """The conversation, oldest first.

    Raises
    ------
    WireError
        Calls and their results do not belong together, or arguments are no JSON object.
    """
    mapped = [_mapped(message, place) for place, message in enumerate(messages)]
    return tool_history.checked(mapped, tool_history.CHAT)


def _mapped(message: given.Message, place: int) -> Message:
    if isinstance(message, given.AssistantMessage):
        return _answer(message, f"messages[{place}]")
    text = "\n".join(part.text for part in message.content)
    if isinstance(message, given.ToolMessage):
        return result_message(message.tool_call_id, "", text, is_error=False)
    return {"role": "user" if message.role == "user" else "system", "content": text}


def _answer(message: given.AssistantMessage, path: str) -> Message:
    """As `mlxnb.sessions.messages.answer_message` makes it of a turn."""
    text = "".join(part.text for part in message.content) or message.refusal or ""
    answer: Message = {"role": "assistant", "content": text}
    if message.reasoning_content:
        answer["reasoning_content"] = message.reasoning_content
    calls = message.tool_calls or ()
    if calls:
        answer["tool_calls"] = [
            _call(call, f"{path}.tool_calls[{n}].function.arguments")
            for n, call in enumerate(calls)
        ]
    return answer


def _call(call: given.ToolCall, path: str) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": _arguments(call, path)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(call: given.ToolCall, path: str) -> dict[str, Any]:
    try:
        read = json.loads(call.function.arguments or "{}", parse_constant=_refuse)
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise invalid(f"{path} is a JSON object as a string", path)
    return read


def _refuse(constant: str) -> None:
    raise ValueError(constant)
