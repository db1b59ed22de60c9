"""A request's messages in the form that chat templates take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mlxnb.sessions.messages import Message, result_message
from mlxnb.wire import tool_history
from mlxnb.wire.ids import toolu
from mlxnb.wire.messages import blocks
from mlxnb.wire.messages.signature import reasoning_of
from mlxnb.wire.system import system_text


def history(messages: Sequence[blocks.Message]) -> list[Message]:
    """The conversation, oldest first.

    Messages of one role in a row are one, as the vendor's API reads them; system messages stay
    where they are.

    Raises
    ------
    WireError
        Calls and their results do not belong together.
    """
    mapped = (message for given in messages for message in _mapped(given))
    joined = list(_joined(mapped))
    if joined and _is_empty_answer(joined[-1]):
        joined.pop()  # the beginning of an answer that says nothing yet
    checked = tool_history.checked(joined, tool_history.MESSAGES)
    return [_renamed(message) for message in checked]


def _mapped(message: blocks.Message) -> Iterator[Message]:
    if isinstance(message, blocks.AssistantMessage):
        yield _answer(message.content)
    elif isinstance(message, blocks.UserMessage):
        yield from _said(message.content)
    else:
        text = system_text([block.text for block in message.content])
        if text is not None:
            yield {"role": "system", "content": text}


def _said(content: Sequence[blocks.UserBlock]) -> Iterator[Message]:
    """Results first: they follow their calls, wherever the client has put them."""
    results = [block for block in content if isinstance(block, blocks.ToolResultBlock)]
    yield from map(_result, results)
    rest = [block.text for block in content if not isinstance(block, blocks.ToolResultBlock)]
    if rest or not results:
        yield {"role": "user", "content": "\n".join(rest)}


def _result(block: blocks.ToolResultBlock) -> Message:
    failed = bool(block.is_error)
    message = result_message(block.tool_use_id, "", block.text, failed)
    return message | {"is_error": True} if failed else message


def _answer(content: Sequence[blocks.AssistantBlock]) -> Message:
    """As `mlxnb.sessions.messages.answer_message` makes it of a turn."""
    texts = [block.text for block in content if isinstance(block, blocks.TextBlock)]
    message: Message = {"role": "assistant", "content": "".join(texts)}
    thoughts = [
        reasoning_of(block.thinking, block.signature)
        for block in content
        if isinstance(block, blocks.ThinkingBlock)
    ]
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    calls = [_call(block) for block in content if isinstance(block, blocks.ToolUseBlock)]
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: blocks.ToolUseBlock) -> dict[str, Any]:
    function = {"name": block.name, "arguments": block.input}
    return {"id": block.id, "type": "function", "function": function}


def _joined(messages: Iterable[Message]) -> Iterator[Message]:
    """One message for each run of one role; results stay apart."""
    last: Message | None = None
    for message in messages:
        if last is not None and message["role"] == last["role"] in ("user", "assistant"):
            last = _both(last, message)
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last


def _both(first: Message, second: Message) -> Message:
    both = first | second
    for field in ("content", "reasoning_content"):
        parts = [message[field] for message in (first, second) if message.get(field)]
        if parts or field == "content":
            both[field] = "\n".join(parts)
    calls = [call for message in (first, second) for call in message.get("tool_calls", ())]
    return both | {"tool_calls": calls} if calls else both


def _is_empty_answer(message: Message) -> bool:
    return message == {"role": "assistant", "content": ""}


def _renamed(message: Message) -> Message:
    """Ids of calls as they are kept."""
    if message["role"] == "tool":
        return message | {"tool_call_id": toolu(message["tool_call_id"])}
    if "tool_calls" not in message:
        return message
    calls = [call | {"id": toolu(call["id"])} for call in message["tool_calls"]]
    return message | {"tool_calls": calls}
