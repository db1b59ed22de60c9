"""Parts of messages, of reasoning and of tools' results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag, field_validator

from mlxnb.wire.parts import RefusalPart
from mlxnb.wire.validation import Wire, wrong

TEXTS = ("input_text", "output_text", "summary_text", "reasoning_text", "text")


class TextPart(Wire):
    """Text, whoever wrote it."""

    type: Literal["input_text", "output_text", "summary_text", "reasoning_text", "text"]
    text: str


class OtherPart(Wire):
    """A part that no model here can read: an image, a file, sound."""

    type: str

    @field_validator("type")
    @classmethod
    def _refused(cls, kind: str) -> str:
        raise wrong(f"is {kind[:40]!r}, which is not supported: models here read text alone")


def _kind(part: Any) -> str | None:
    kind = part.get("type") if isinstance(part, dict) else getattr(part, "type", None)
    if kind is None:
        return None
    return "text" if kind in TEXTS else "refusal" if kind == "refusal" else "other"


Part = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[RefusalPart, Tag("refusal")]
    | Annotated[OtherPart, Tag("other")],
    Discriminator(
        _kind, custom_error_type="invalid_value", custom_error_message="is an object with a type"
    ),
]
Content = str | list[Part]


def text_of(
    content: str | Sequence[TextPart | RefusalPart | OtherPart] | None, between: str
) -> str:
    """All text in it, its parts joined by ``between``."""
    if content is None or isinstance(content, str):
        return content or ""
    return between.join(part.text for part in content if not isinstance(part, OtherPart))
