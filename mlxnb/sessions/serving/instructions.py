"""Instructions in the midst of a conversation, for templates that know no such message (W17)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from mlxnb.errors import TemplateFailed
from mlxnb.sessions.messages import Message
from mlxnb.sessions.places import sentinel
from mlxnb.sessions.serving.conversation import Conversation
from mlxnb.sessions.template import ChatTemplate


def fitted(
    conversation: Conversation, template: ChatTemplate, tools: list[Any] | None
) -> Conversation:
    """The conversation as `placed`; where that moves anything, it goes on from no tokens.

    ``system`` stays as it was given: what is filed is what was said, and is placed anew.
    """
    messages = placed(conversation.messages, template, tools)
    if messages == conversation.messages:
        return conversation
    return replace(conversation, messages=messages, track=None, warm=False)


def placed(
    messages: Sequence[Message], template: ChatTemplate, tools: list[Any] | None
) -> tuple[Message, ...]:
    """The conversation with its instructions where the template writes them.

    System messages stay where they are if the template writes each of them, in their order. If it
    refuses one or leaves one out, all are merged into the system text, since none may get lost.
    """
    if all(message["role"] != "system" for message in messages[1:]):
        return tuple(messages)
    if _writes(messages, template, tools):
        return tuple(messages)
    texts = [m["content"] for m in messages if m["role"] == "system" and m["content"]]
    rest = _joined(message for message in messages if message["role"] != "system")
    return ({"role": "system", "content": "\n\n".join(texts)}, *rest)


def _writes(messages: Sequence[Message], template: ChatTemplate, tools: list[Any] | None) -> bool:
    """Whether each system message comes out, where it stands among the others."""
    answers = messages[-1]["role"] == "assistant"  # the beginning of one: no message of its own
    marked, marks = [], []
    for message in messages[:-1] if answers else messages:
        if message["role"] == "system":
            marks.append(sentinel())
            marked.append({**message, "content": marks[-1]})
        else:
            marked.append(message)
    try:
        text = template.render(marked, tools)
    except TemplateFailed:
        return False
    found = [text.find(mark) for mark in marks]
    return min(found) >= 0 and found == sorted(found)


def _joined(messages: Iterable[Message]) -> list[Message]:
    """User messages that nothing stands between any more are one."""
    joined: list[Message] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "user":
            both = f"{joined[-1]['content']}\n{message['content']}"
            joined[-1] = {**joined[-1], "content": both}
        else:
            joined.append(message)
    return joined
