"""What models write around the arguments of a call, by format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Envelope:
    """What stands around a call's arguments, between the tags; ``{name}`` is the tool's name.

    ``json``: the arguments are JSON; otherwise ``tail`` is not used.
    """

    head: str
    tail: str = ""
    json: bool = False

    @classmethod
    def of(cls, parse: Callable[..., Any] | None) -> Envelope:
        """The envelope that belongs to one of mlx-lm's parsers, by its module's name."""
        return ENVELOPES.get(getattr(parse, "__module__", "").rpartition(".")[2], cls(""))

    def heads(self, names: Iterable[str]) -> dict[str, str]:
        """The names of tools by what a call of them begins with, blanks aside."""
        return {self.head.format(name=name): name for name in names}


# By the modules of mlx_lm.tool_parsers; this module's own name is for models without a format.
ENVELOPES: Mapping[str, Envelope] = {
    "json_tools": Envelope('{{"name": "{name}", "arguments": ', "}", json=True),
    "envelope": Envelope('{{"name": "{name}", "arguments": ', "}", json=True),
    "mistral": Envelope("{name}[ARGS]", json=True),
    "function_gemma": Envelope("call:{name}{{"),
    "gemma4": Envelope("call:{name}{{"),
    "minimax_m2": Envelope('<invoke name="{name}">'),
    "pythonic": Envelope("[{name}("),
    "qwen3_coder": Envelope("<function={name}>"),
}

PLAIN_TAGS = ("<tool_call>", "</tool_call>")
"""Tags of calls for models that have no format of their own, whose bodies `parse_json` reads."""


def parse_json(text: str, tools: Any = None) -> Any:
    """The call of a model without a format of its own."""
    return json.loads(text)


class ArgumentsReader:
    """Reads the arguments of one call while they are generated.

    Parameters
    ----------
    heads
        Names of tools by what a call of them begins with; see `Envelope.heads`.

    Attributes
    ----------
    name
        The tool that is called; None: not known yet.
    """

    __slots__ = ("_begun", "_depth", "_escaped", "_head", "_heads", "_quoted", "name")

    def __init__(self, heads: Mapping[str, str]) -> None:
        self.name: str | None = None
        self._heads = heads
        self._head = ""
        self._depth = 0
        self._begun = self._quoted = self._escaped = False

    def feed(self, text: str) -> str:
        """What of the arguments' JSON this piece of the call's body makes known."""
        if self.name is None:
            self._head += text
            body = self._head.lstrip()
            head = next((head for head in self._heads if body.startswith(head)), None)
            if head is None:
                return ""
            self.name, text = self._heads[head], body[len(head) :]
        return self._value(text if self._begun else text.lstrip())

    def _value(self, text: str) -> str:
        """The part of ``text`` that belongs to the JSON object, which ends with its brace."""
        if self._begun and self._depth == 0:
            return ""
        for place, character in enumerate(text):
            self._begun = True
            self._step(character)
            if self._depth == 0:
                return text[: place + 1]
        return text

    def _step(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif self._quoted:
            self._escaped = character == "\\"
            self._quoted = character != '"'
        elif character == '"':
            self._quoted = True
        else:
            self._depth += (character in "{[") - (character in "}]")
