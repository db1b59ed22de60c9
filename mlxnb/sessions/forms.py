"""The form that a request's answer must have, and what holds it to that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlxnb.engine.form import Form
from mlxnb.engine.schema import check_schema, read_schema
from mlxnb.errors import InvalidOption
from mlxnb.sessions.ask import ToolChoice


def form_of(
    tools: Sequence[str], choice: ToolChoice, schema: str | None, reasoning_tokens: int | None
) -> Form | None:
    """The form of an answer; None: any.

    Parameters
    ----------
    tools
        Tool definitions, each as JSON.
    schema
        A JSON schema for the text, as JSON.

    Raises
    ------
    BadSchema
        A schema cannot be enforced; the message names the path.
    InvalidOption
        The choice names a tool that is not there, or needs one and there is none.
    """
    arguments = {} if choice.mode == "none" else _arguments(tools)
    missing = [name for name in choice.names if name not in arguments]
    if missing or (choice.mode == "required" and not arguments):
        raise InvalidOption(
            f"tool_choice: there is no tool {missing[0]!r}" if missing else "tool_choice: no tools",
            param="tool_choice",
        )
    parsed = None if schema is None else read_schema(schema, "schema")
    if not arguments and parsed is None and reasoning_tokens is None:
        return None
    return Form(
        schema=parsed,
        tools=arguments or None,
        names=choice.names,
        required=choice.mode == "required",
        parallel=choice.parallel,
        reasoning_tokens=reasoning_tokens,
    )


def _arguments(tools: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The schemas of the tools' arguments, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for number, tool in enumerate(map(json.loads, tools)):
        function = tool.get("function") or tool
        schema = function.get("parameters") or {"type": "object"}
        check_schema(schema, f"tools[{number}].parameters")
        found[str(function.get("name"))] = schema
    return found
