"""Tools, in the client's form and the template's, and which of them may be called."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, StringConstraints, Tag

from mlxnb.sessions.ask import ToolChoice
from mlxnb.wire.errors import invalid
from mlxnb.wire.validation import Wire

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class FunctionTool(Wire):
    """A function with a JSON schema for its arguments."""

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def template(self) -> dict[str, Any]:
        """As chat templates take it."""
        return _function(
            self.name, self.description, self.parameters or {"type": "object", "properties": {}}
        )

    def echo(self) -> dict[str, Any]:
        """As the response object repeats it."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": self.strict,
        }


class CustomFormat(Wire):
    """What the input of a custom tool looks like."""

    type: Literal["text", "grammar"]
    definition: str | None = None
    syntax: str | None = None


class CustomTool(Wire):
    """A tool whose input is free text; the model sees a function with one string, ``input``."""

    type: Literal["custom"]
    name: Name
    description: str | None = None
    format: CustomFormat | None = None

    def template(self) -> dict[str, Any]:
        """As chat templates take it; a grammar is described, not enforced."""
        told = [self.description] if self.description else []
        if self.format is not None and self.format.definition:
            syntax = self.format.syntax or "grammar"
            told.append(f"The input follows this grammar ({syntax}):\n{self.format.definition}")
        return _function(self.name, "\n\n".join(told) or None, _FREE_TEXT)

    def echo(self) -> dict[str, Any]:
        """As the response object repeats it."""
        given = {"type": "custom", "name": self.name, "description": self.description}
        if self.format is None or self.format.type == "text":
            return {**given, "format": {"type": "text"}}
        return {**given, "format": self.format.model_dump()}


class OtherTool(Wire):
    """A tool that the vendor runs itself, such as ``web_search``; there is none here."""

    type: str


_FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The tool's input, as it stands."}},
    "required": ["input"],
    "additionalProperties": False,
}


def _function(name: str, description: str | None, parameters: dict[str, Any]) -> dict[str, Any]:
    told = {} if description is None else {"description": description}
    return {"type": "function", "function": {"name": name, **told, "parameters": parameters}}


def _kind(tool: Any) -> str | None:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    if kind is None:
        return None
    return kind if kind in ("function", "custom") else "other"


Tool = Annotated[
    Annotated[FunctionTool, Tag("function")]
    | Annotated[CustomTool, Tag("custom")]
    | Annotated[OtherTool, Tag("other")],
    Discriminator(
        _kind, custom_error_type="invalid_value", custom_error_message="is an object with a type"
    ),
]
UserTool = FunctionTool | CustomTool


def callables(tools: Iterable[FunctionTool | CustomTool | OtherTool]) -> tuple[UserTool, ...]:
    """Those that a model here can call.

    Raises
    ------
    WireError
        400: two have one name.
    """
    found: dict[str, UserTool] = {}
    for tool in tools:
        if isinstance(tool, OtherTool):
            continue
        if tool.name in found:
            raise invalid(f"tools has more than one tool named {tool.name!r}", "tools")
        found[tool.name] = tool
    return tuple(found.values())


def packed(tools: Sequence[UserTool]) -> tuple[str, ...]:
    """The template's form, each as JSON."""
    return tuple(json.dumps(tool.template(), ensure_ascii=False) for tool in tools)


# --- which may be called -------------------------------------------------------------------


class NamedTool(Wire):
    """One tool by its name."""

    type: Literal["function", "custom"]
    name: str


class AllowedTools(Wire):
    """Some of the tools, one of which may or must be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedTool]


Choice = Literal["none", "auto", "required"] | NamedTool | AllowedTools


def tool_choice(choice: Choice | None, tools: Sequence[UserTool], parallel: bool) -> ToolChoice:
    """What may and must be called.

    Raises
    ------
    WireError
        400: a tool is named that is not there, or a call asked for where there are no tools.
    """
    mode: Literal["none", "auto", "required"] = "auto"
    names: tuple[str, ...] = ()
    if isinstance(choice, NamedTool):
        mode, names = "required", (choice.name,)
    elif isinstance(choice, AllowedTools):
        mode, names = choice.mode, tuple(tool.name for tool in choice.tools)
    elif choice is not None:
        mode = choice
    _check_names(names, tools)
    if mode == "required" and not tools:
        raise invalid("tool_choice asks for a call, and the request has no tools", "tool_choice")
    if isinstance(choice, AllowedTools) and not names:
        raise invalid("tool_choice.tools names no tool; use 'none' instead", "tool_choice")
    return ToolChoice(mode, names, parallel)


def _check_names(names: Iterable[str], tools: Sequence[UserTool]) -> None:
    there = [tool.name for tool in tools]
    for name in names:
        if name not in there:
            raise invalid(
                f"tool_choice names the tool {name!r}; there are {', '.join(there) or 'none'}",
                "tool_choice",
            )
