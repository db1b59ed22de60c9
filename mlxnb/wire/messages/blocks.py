"""Content blocks that a message may hold, by the role of whoever sends it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field

from mlxnb.wire.validation import Wire, wrong


class TextBlock(Wire):
    """Text of a message."""

    type: Literal["text"]
    text: str


class PlainSource(Wire):
    """A document's text, as it is."""

    type: Literal["text"]
    data: str


class DocumentBlock(Wire):
    """A document whose text comes with it; files and PDFs are refused at ``source``."""

    type: Literal["document"]
    source: PlainSource
    title: str | None = None
    context: str | None = None

    @property
    def text(self) -> str:
        """What the model reads: title, context and text, each where there is one."""
        return "\n".join(filter(None, (self.title, self.context, self.source.data)))


class ToolReferenceBlock(Wire):
    """The name of a tool that a client's tool search has found; every tool is there anyway."""

    type: Literal["tool_reference"]
    tool_name: str

    @property
    def text(self) -> str:
        """What the model reads."""
        return self.tool_name


class ThinkingBlock(Wire):
    """Reasoning of an earlier answer; its signature may be anything."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Wire):
    """Reasoning that only its maker can read."""

    type: Literal["redacted_thinking"]


class ToolUseBlock(Wire):
    """A call that an earlier answer made."""

    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: dict[str, Any]


def _blocks(content: Any) -> Any:
    """A string is short for one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise wrong("is a string or a list of content blocks")
    return content


def _blocks_or_none(content: Any) -> Any:
    return [] if content is None else _blocks(content)


def _one_of(*types: str) -> Any:
    """Tells blocks apart by their type; another type than these is refused, never dropped."""
    return Field(
        discriminator=Discriminator(
            "type",
            custom_error_type="block",
            custom_error_message=f"has a type that is not supported; there are {', '.join(types)}",
        )
    )


ResultPart = Annotated[
    TextBlock | DocumentBlock | ToolReferenceBlock, _one_of("text", "document", "tool_reference")
]


class ToolResultBlock(Wire):
    """What a call has come to."""

    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Annotated[list[ResultPart], BeforeValidator(_blocks_or_none)] = Field([])
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """What the model reads."""
        return "\n".join(part.text for part in self.content)


UserBlock = Annotated[
    TextBlock | DocumentBlock | ToolResultBlock, _one_of("text", "document", "tool_result")
]
AssistantBlock = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock,
    _one_of("text", "thinking", "redacted_thinking", "tool_use"),
]
Texts = Annotated[list[TextBlock], BeforeValidator(_blocks)]


class SystemMessage(Wire):
    """Instructions that stand in the midst of a conversation."""

    role: Literal["system"]
    content: Texts


class UserMessage(Wire):
    """What the user says, and what tools have returned."""

    role: Literal["user"]
    content: Annotated[list[UserBlock], BeforeValidator(_blocks)]


class AssistantMessage(Wire):
    """An earlier answer, or the beginning of the one that is asked for."""

    role: Literal["assistant"]
    content: Annotated[list[AssistantBlock], BeforeValidator(_blocks)]


Message = Annotated[
    SystemMessage | UserMessage | AssistantMessage,
    Field(
        discriminator=Discriminator(
            "role",
            custom_error_type="role",
            custom_error_message="has a role that is none of user, assistant, system",
        )
    ),
]
