"""How a model writes its reasoning and its calls, as grammars need to know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlxnb.text.envelope import PLAIN_TAGS, Envelope, parse_json


@dataclass(frozen=True, slots=True)
class Markup:
    """A model's tags.

    Of mlx-lm's call formats those whose arguments are JSON can be held to a schema; of the
    others the beginning is written for the model and the rest is its own.

    Attributes
    ----------
    think
        Start and end tag of reasoning; None: it does not reason.
    call
        Start and end tag of a call; an empty end tag: the call ends with the answer, or where
        the next one starts.
    envelope
        What stands between them.
    calls
        It is the model's own; otherwise it writes calls only where it must.
    """

    think: tuple[str, str] | None
    call: tuple[str, str]
    envelope: Envelope
    calls: bool = True

    @classmethod
    def of(cls, tokenizer: Any) -> Markup:
        """The markup of mlx-lm's tokenizer wrapper."""
        think = (tokenizer.think_start, tokenizer.think_end) if tokenizer.has_thinking else None
        if not tokenizer.has_tool_calling:
            return cls(think, PLAIN_TAGS, Envelope.of(parse_json), calls=False)
        tags = (tokenizer.tool_call_start, tokenizer.tool_call_end or "")
        return cls(think, tags, Envelope.of(tokenizer.tool_parser))
