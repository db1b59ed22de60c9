"""A piece of a streamed answer, as users iterate over it."""

from __future__ import annotations

from typing import Literal

from mlxnb.records.turn import ToolCall

Kind = Literal["text", "reasoning", "tool_call"]


class Delta(str):
    """Visible text, as a string: the deltas of a turn joined are its ``text``.

    A delta of reasoning or of a tool call is the empty string and carries it in ``reasoning`` or
    ``call``.
    """

    __slots__ = ("call", "kind", "reasoning")

    kind: Kind
    reasoning: str
    call: ToolCall | None

    def __new__(
        cls, text: str = "", kind: Kind = "text", reasoning: str = "", call: ToolCall | None = None
    ) -> Delta:
        """A delta of one kind."""
        delta = super().__new__(cls, text)
        delta.kind, delta.reasoning, delta.call = kind, reasoning, call
        return delta

    @property
    def text(self) -> str:
        """The visible text."""
        return str(self)
