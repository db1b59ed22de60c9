"""Calls and their results in a conversation, checked whole before a template sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlxnb.sessions.messages import Message
from mlxnb.wire.errors import WireError


@dataclass(frozen=True, slots=True)
class Words:
    """How a protocol names a call, its result, the id of both, and the field with all of them."""

    call: str
    result: str
    id: str
    param: str


RESPONSES = Words("function_call", "function_call_output", "call_id", "input")
MESSAGES = Words("tool_use", "tool_result", "tool_use_id", "messages")
CHAT = Words("tool_call", "tool message", "tool_call_id", "messages")


def checked(
    messages: Iterable[Message], words: Words, pending: Mapping[str, str] | None = None
) -> list[Message]:
    """The messages, each result with its call's name and in the order of the calls.

    Parameters
    ----------
    messages
        In the template's form; a result is a message of the role ``tool``.
    words
        For the messages of errors.
    pending
        Ids and names of the calls that the conversation before these messages left open.

    Raises
    ------
    WireError
        400: a result without its call, a call without its result, an id that is missing, twice
        there or never declared.
    """
    history = _History(words, dict(pending or {}))
    for message in messages:
        history.take(message)
    history.settle()
    return history.out


class _History:
    """Messages so far, and the calls among them that have no result yet."""

    def __init__(self, words: Words, pending: dict[str, str]) -> None:
        self.out: list[Message] = []
        self._words = words
        self._pending = pending
        self._declared = set(pending)
        self._given: dict[str, Message] = {}

    def take(self, message: Message) -> None:
        """One more message."""
        if message["role"] == "tool":
            self._take_result(message)
            return
        self.settle()
        for call in message.get("tool_calls") or ():
            self._declare(call)
        self.out.append(message)

    def settle(self) -> None:
        """Results end here: all of them are there, or none was due."""
        missing = [call_id for call_id in self._pending if call_id not in self._given]
        if missing:
            names = ", ".join(f"{i!r} ({self._pending[i]})" for i in missing)
            raise self._error(
                f"each {self._words.call} is followed by its {self._words.result}; "
                f"there is none for {names}"
            )
        self.out += [self._given[call_id] for call_id in self._pending]
        self._pending, self._given = {}, {}

    def _declare(self, call: Mapping[str, Any]) -> None:
        call_id = call.get("id")
        if not call_id or not isinstance(call_id, str):
            raise self._error(f"a {self._words.call} has no id")
        if call_id in self._declared:
            raise self._error(f"the id {call_id!r} is that of more than one {self._words.call}")
        self._declared.add(call_id)
        self._pending[call_id] = call["function"]["name"]

    def _take_result(self, message: Message) -> None:
        call_id, words = message.get("tool_call_id"), self._words
        if not call_id or not isinstance(call_id, str):
            raise self._error(f"a {words.result} has no {words.id}")
        if call_id not in self._declared:
            raise self._error(
                f"a {words.result} names the {words.id} {call_id!r}, and there is no such "
                f"{words.call} before it"
            )
        if call_id in self._given or call_id not in self._pending:
            raise self._error(
                f"the {words.id} {call_id!r} has more than one {words.result}, or one that does "
                f"not follow its {words.call}"
            )
        self._given[call_id] = message | {"name": self._pending[call_id]}

    def _error(self, message: str) -> WireError:
        return WireError(400, message, code="invalid_tool_history", param=self._words.param)
