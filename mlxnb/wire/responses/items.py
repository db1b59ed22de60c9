"""What ``input`` is made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, StringConstraints, Tag, field_validator

from mlxnb.wire import body
from mlxnb.wire.errors import WireError
from mlxnb.wire.responses.content import Content, Part
from mlxnb.wire.responses.tools import Tool
from mlxnb.wire.validation import Wire, wrong

Id = Annotated[str, StringConstraints(min_length=1)]


class MessageItem(Wire):
    """What somebody said."""

    type: Literal["message"] | None = None
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class ReasoningItem(Wire):
    """What the model thought: ``content`` where a server gave it, else the summary."""

    type: Literal["reasoning"] | None = None
    id: str | None = None
    summary: list[Part] | None = None
    content: list[Part] | None = None


class FunctionCallItem(Wire):
    """A call that the model made; ``arguments`` is JSON."""

    type: Literal["function_call"] | None = None
    id: str | None = None
    call_id: Id
    name: Id
    arguments: str

    @field_validator("arguments")
    @classmethod
    def _an_object(cls, arguments: str) -> str:
        parsed(arguments)
        return arguments

    @property
    def given(self) -> dict[str, Any]:
        """The arguments as the template takes them."""
        return parsed(self.arguments)


class CustomCallItem(Wire):
    """A call of a custom tool; ``input`` is free text."""

    type: Literal["custom_tool_call"] | None = None
    id: str | None = None
    call_id: Id
    name: Id
    input: str

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of the function that the model saw."""
        return {"input": self.input}


class CallOutputItem(Wire):
    """What a call of either kind came to."""

    type: Literal["function_call_output", "custom_tool_call_output"] | None = None
    id: str | None = None
    call_id: Id
    output: Content


class ToolsItem(Wire):
    """Further tools, given in the midst of the input."""

    type: Literal["additional_tools"]
    id: str | None = None
    tools: list[Tool]


class ReferenceItem(Wire):
    """An item of a stored response, by its id."""

    type: Literal["item_reference"] | None = None
    id: Id


class OtherItem(Wire):
    """An item that only the vendor's own tools make or need."""

    type: str
    id: str | None = None

    @field_validator("type")
    @classmethod
    def _refused(cls, kind: str) -> str:
        raise wrong(f"is {kind[:40]!r}, which is not supported; there are {', '.join(_KINDS)}")


def parsed(arguments: str) -> dict[str, Any]:
    """Arguments of a call; empty ones are none."""
    try:
        return body.read(arguments.encode()) if arguments.strip() else {}
    except WireError:
        raise wrong("is a JSON object, written as a string") from None


_KINDS = (
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "additional_tools",
    "item_reference",
)
_TELLING = {
    "role": "message",
    "output": "function_call_output",
    "arguments": "function_call",
    "input": "custom_tool_call",
    "summary": "reasoning",
    "id": "item_reference",
}
"""A key that only one kind has, for items that do not say what they are."""


def _kind(item: Any) -> str | None:
    if not isinstance(item, dict):
        kind = getattr(item, "type", None)
        return kind if isinstance(kind, str) else None
    kind = item.get("type")
    if kind is None:
        kind = next((told for key, told in _TELLING.items() if key in item), None)
    if kind == "custom_tool_call_output":
        return "function_call_output"
    return kind if kind is None or kind in _KINDS else "other"


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[CustomCallItem, Tag("custom_tool_call")]
    | Annotated[CallOutputItem, Tag("function_call_output")]
    | Annotated[ToolsItem, Tag("additional_tools")]
    | Annotated[ReferenceItem, Tag("item_reference")]
    | Annotated[OtherItem, Tag("other")],
    Discriminator(
        _kind,
        custom_error_type="invalid_value",
        custom_error_message="is an object with a type or a role",
    ),
]
CallItem = FunctionCallItem | CustomCallItem
AnyItem = (
    MessageItem
    | ReasoningItem
    | FunctionCallItem
    | CustomCallItem
    | CallOutputItem
    | ToolsItem
    | ReferenceItem
    | OtherItem
)
