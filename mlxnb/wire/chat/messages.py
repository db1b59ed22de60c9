"""Messages of a chat, by the role of whoever sends them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field

from mlxnb.wire.parts import RefusalPart
from mlxnb.wire.validation import Wire, wrong


class TextPart(Wire):
    """Text of a message."""

    type: Literal["text"]
    text: str


class CalledFunction(Wire):
    """Name and arguments of a call, these as JSON."""

    name: str = Field(min_length=1)
    arguments: str = ""


class ToolCall(Wire):
    """A call that an earlier answer made."""

    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: CalledFunction


def _parts(content: Any) -> Any:
    """A string is short for one part of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise wrong("is a string or a list of content parts")
    return content


def _parts_or_none(content: Any) -> Any:
    return [] if content is None else _parts(content)


Texts = Annotated[list[TextPart], BeforeValidator(_parts)]
_AnswerPart = Annotated[
    TextPart | RefusalPart,
    Field(
        discriminator=Discriminator(
            "type",
            custom_error_type="part",
            custom_error_message="has a type that is not supported; there are text, refusal",
        )
    ),
]


class SystemMessage(Wire):
    """Instructions; ``developer`` is another name for them."""

    role: Literal["system", "developer"]
    content: Texts


class UserMessage(Wire):
    """What the user says."""

    role: Literal["user"]
    content: Texts


class AssistantMessage(Wire):
    """An earlier answer."""

    role: Literal["assistant"]
    content: Annotated[list[_AnswerPart], BeforeValidator(_parts_or_none)] = Field([])
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class ToolMessage(Wire):
    """What a call has come to."""

    role: Literal["tool"]
    tool_call_id: str = Field(min_length=1)
    content: Texts


Message = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage,
    Field(
        discriminator=Discriminator(
            "role",
            custom_error_type="role",
            custom_error_message="has a role that is none of system, developer, user, assistant, "
            "tool",
        )
    ),
]
