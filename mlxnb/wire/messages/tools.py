"""Tools of a request and which of them may be called."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from mlxnb.sessions.ask import ToolChoice
from mlxnb.wire.errors import invalid
from mlxnb.wire.validation import Wire


class Tool(Wire):
    """A tool that the client runs.

    Of a tool that the vendor's own servers or models define (``type`` is none of ``custom``) the
    type alone is known, and it is left out.
    """

    name: str = Field(min_length=1)
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None

    @property
    def known(self) -> bool:
        """Whether the request says what it takes."""
        return self.type in (None, "custom")

    @property
    def packed(self) -> str:
        """Its definition in the form that chat templates take, as JSON."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = self.input_schema
        return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


class _Choice(Wire):
    disable_parallel_tool_use: bool | None = None


class Auto(_Choice):
    """As the model likes."""

    type: Literal["auto"]


class Any_(_Choice):
    """At least one call."""

    type: Literal["any"]


class Named(_Choice):
    """A call of this tool."""

    type: Literal["tool"]
    name: str


class None_(Wire):
    """No call."""

    type: Literal["none"]


Choice = Annotated[Auto | Any_ | Named | None_, Field(discriminator="type")]


def known_tools(tools: Sequence[Tool]) -> list[Tool]:
    """The tools that a model can be shown.

    Raises
    ------
    WireError
        Two have one name, or one has no schema.
    """
    known = [tool for tool in tools if tool.known]
    names: set[str] = set()
    for place, tool in enumerate(tools):
        if not tool.known:
            continue
        if tool.input_schema is None:
            raise invalid(
                f"tools[{place}].input_schema: this field is required",
                f"tools[{place}].input_schema",
            )
        if tool.name in names:
            raise invalid(
                f"tools[{place}].name: there are two tools of this name", f"tools[{place}].name"
            )
        names.add(tool.name)
    return known


def tool_choice(choice: Auto | Any_ | Named | None_ | None, tools: Sequence[Tool]) -> ToolChoice:
    """Which calls the answer may or must make.

    Raises
    ------
    WireError
        A call is asked for and there is no such tool.
    """
    if isinstance(choice, None_):
        return ToolChoice("none")
    parallel = not (choice is not None and choice.disable_parallel_tool_use)
    if choice is None or isinstance(choice, Auto):
        return ToolChoice("auto", parallel=parallel)
    if not tools:
        raise invalid(
            "tool_choice: a call is asked for, and the request has no tools", "tool_choice"
        )
    if isinstance(choice, Any_):
        return ToolChoice("required", parallel=parallel)
    if choice.name not in {tool.name for tool in tools}:
        raise invalid(
            f"tool_choice.name: no tool of this name; there are {', '.join(t.name for t in tools)}",
            "tool_choice.name",
        )
    return ToolChoice("required", (choice.name,), parallel)
