"""Items to messages in the template's form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import TypeAdapter

from mlxnb.sessions.messages import Message
from mlxnb.wire import ids, tool_history
from mlxnb.wire.errors import WireError, invalid
from mlxnb.wire.responses.content import text_of
from mlxnb.wire.responses.items import (
    AnyItem,
    CallItem,
    CallOutputItem,
    CustomCallItem,
    FunctionCallItem,
    Item,
    MessageItem,
    ReasoningItem,
    ReferenceItem,
)

Outputs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Output items of stored responses as they were sent, by the responses' ids."""
_ITEM: TypeAdapter[AnyItem] = TypeAdapter(Item)


class Chain(Protocol):
    """The stored response that a request continues."""

    @property
    def pending(self) -> Mapping[str, str]:
        """Ids and names of its calls that have no result yet."""

    @property
    def outputs(self) -> Sequence[Mapping[str, Any]]:
        """Its output items as they were sent."""


def messages(items: Iterable[AnyItem], pending: Mapping[str, str] | None) -> list[Message]:
    """What the items add to the conversation, calls and results checked whole.

    A run of reasoning, assistant messages and calls is one turn of the assistant.

    Parameters
    ----------
    pending
        Ids and names of the calls that the conversation before them left open.

    Raises
    ------
    WireError
        400: results and calls do not match.
    """
    runs = _Runs()
    for item in items:
        runs.take(item)
    return tool_history.checked(runs.finish(), tool_history.RESPONSES, pending)


def referenced(items: Iterable[AnyItem]) -> list[str]:
    """The stored responses that items refer to by their ids, each once."""
    named = (ids.response_of(item.id) for item in items if isinstance(item, ReferenceItem))
    return list(dict.fromkeys(response for response in named if response is not None))


def new_items(items: Iterable[AnyItem], chain: Chain | None, stored: Outputs) -> list[AnyItem]:
    """The items that are new: without what repeats the stored turn, and with no references.

    Raises
    ------
    WireError
        400: a call that the stored turn did not make; 404: a reference to what is not stored.
    """
    there = {str(item["id"]): item for outputs in stored.values() for item in outputs}
    repeated = _Repeated(() if chain is None else chain.outputs)
    return [
        _found(item, there, number) if isinstance(item, ReferenceItem) else item
        for number, item in enumerate(items)
        if chain is None or not repeated.has(item, number)
    ]


def _found(item: ReferenceItem, there: Mapping[str, Mapping[str, Any]], number: int) -> AnyItem:
    if item.id in there:
        return _ITEM.validate_python(dict(there[item.id]))
    raise WireError(
        404,
        f"input[{number}] names {item.id[:80]!r}, and no such item is stored; send it whole",
        code="item_not_found",
        param=f"input[{number}]",
    )


class _Repeated:
    """The items of the stored turn, which some clients send once more."""

    def __init__(self, outputs: Sequence[Mapping[str, Any]]) -> None:
        self._ids = {item["id"] for item in outputs if item.get("id")}
        self._calls = {item["call_id"] for item in outputs if item.get("call_id")}

    def has(self, item: AnyItem, number: int) -> bool:
        """Whether it is one of them; a call must be."""
        if not isinstance(item, FunctionCallItem | CustomCallItem):
            return item.id in self._ids
        if item.call_id in self._calls:
            return True
        raise invalid(
            f"input[{number}] is a call that the previous response did not make "
            f"({item.call_id[:80]!r})",
            f"input[{number}]",
            "invalid_tool_history",
        )


@dataclass(slots=True)
class _Run:
    """One turn of the assistant as its items come."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[CallItem] = field(default_factory=list)

    def message(self) -> Message:
        message: Message = {"role": "assistant", "content": "".join(self.text)}
        if any(self.reasoning):
            message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.given},
                }
                for call in self.calls
            ]
        return message


class _Runs:
    """Collects items of the assistant into turns."""

    def __init__(self) -> None:
        self._out: list[Message] = []
        self._run: _Run | None = None

    def take(self, item: AnyItem) -> None:
        """One more item."""
        if isinstance(item, ReasoningItem):
            self._open().reasoning.append(text_of(item.content or item.summary, ""))
        elif isinstance(item, FunctionCallItem | CustomCallItem):
            self._open().calls.append(item)
        elif isinstance(item, MessageItem) and item.role == "assistant":
            self._open().text.append(text_of(item.content, ""))
        elif isinstance(item, MessageItem):
            role = "user" if item.role == "user" else "system"
            self._add({"role": role, "content": text_of(item.content, "\n")})
        elif isinstance(item, CallOutputItem):
            content = text_of(item.output, "\n")
            self._add({"role": "tool", "tool_call_id": item.call_id, "content": content})

    def finish(self) -> list[Message]:
        """All messages."""
        self._close()
        return self._out

    def _open(self) -> _Run:
        if self._run is None:
            self._run = _Run()
        return self._run

    def _close(self) -> None:
        if self._run is not None:
            self._out.append(self._run.message())
        self._run = None

    def _add(self, message: Message) -> None:
        self._close()
        self._out.append(message)
