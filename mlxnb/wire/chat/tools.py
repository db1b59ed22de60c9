"""Tools of a chat and which of them may be called."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from mlxnb.sessions.ask import ToolChoice
from mlxnb.wire.errors import WireError, invalid
from mlxnb.wire.validation import Wire


class Function(Wire):
    """What a tool is called and takes."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Wire):
    """A tool that the client runs."""

    type: Literal["function"]
    function: Function

    @property
    def packed(self) -> str:
        """Its definition in the form that chat templates take, as JSON."""
        function: dict[str, Any] = {"name": self.function.name}
        if self.function.description is not None:
            function["description"] = self.function.description
        function["parameters"] = self.function.parameters or {"type": "object", "properties": {}}
        return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


class FunctionName(Wire):
    """The name of a tool."""

    name: str


class Named(Wire):
    """A tool by its name."""

    type: Literal["function"]
    function: FunctionName


class Allowance(Wire):
    """Some of the tools."""

    mode: Literal["auto", "required"]
    tools: list[Named] = Field(min_length=1)


class Allowed(Wire):
    """Calls of these tools alone."""

    type: Literal["allowed_tools"]
    allowed_tools: Allowance


Choice = (
    Literal["none", "auto", "required"] | Annotated[Named | Allowed, Field(discriminator="type")]
)


def check_tools(tools: Sequence[Tool]) -> None:
    """Raise `WireError` if two tools have one name."""
    names: set[str] = set()
    for place, tool in enumerate(tools):
        if tool.function.name in names:
            path = f"tools[{place}].function.name"
            raise invalid(f"{path} is that of another tool too", path)
        names.add(tool.function.name)


def tool_choice(choice: Choice | None, parallel: bool, tools: Sequence[Tool]) -> ToolChoice:
    """Which calls the answer may or must make.

    Raises
    ------
    WireError
        A call is asked for and there is no such tool.
    """
    if choice is None or choice == "auto":
        return ToolChoice("auto", parallel=parallel)
    if choice == "none":
        return ToolChoice("none")
    if not tools:
        raise invalid("tool_choice asks for a call, and the request has no tools", "tool_choice")
    if choice == "required":
        return ToolChoice("required", parallel=parallel)
    if isinstance(choice, Named):
        _check_names([choice.function.name], tools)
        return ToolChoice("required", (choice.function.name,), parallel)
    names = [tool.function.name for tool in choice.allowed_tools.tools]
    _check_names(names, tools)
    return ToolChoice(choice.allowed_tools.mode, tuple(names), parallel)


def _check_names(names: Sequence[str], tools: Sequence[Tool]) -> None:
    known = [tool.function.name for tool in tools]
    if not set(names) <= set(known):
        raise _unknown(known)


def _unknown(known: Sequence[str]) -> WireError:
    return invalid(f"tool_choice names no tool of the request: {', '.join(known)}", "tool_choice")
