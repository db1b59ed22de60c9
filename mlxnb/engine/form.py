"""What an answer must look like, whatever the model would like to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Form:
    """The shape of an answer: JSON of a schema, calls of tools, and how long it may reason.

    Attributes
    ----------
    schema
        A JSON schema that the text must conform to; None: free text.
    tools
        The JSON schema of each tool's arguments, by the tool's name.
    names
        The tools that may be called; empty: all of them.
    required
        The answer is one call at least, and no text.
    parallel
        It may be more than one call.
    reasoning_tokens
        Tokens that it may reason for; None: as long as it likes.
    """

    schema: Mapping[str, Any] | None = None
    tools: Mapping[str, Mapping[str, Any]] | None = None
    names: tuple[str, ...] = ()
    required: bool = False
    parallel: bool = True
    reasoning_tokens: int | None = None

    @property
    def callable_tools(self) -> dict[str, Mapping[str, Any]]:
        """The tools that may be called, with the schemas of their arguments."""
        tools = self.tools or {}
        return {name: tools[name] for name in self.names or tools}
