"""The form that a request's answer must have, and what holds it to that."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlxnb.engine.form import Form
from mlxnb.engine.schema import check_rules, check_schema, read_schema
from mlxnb.errors import BadSchema, InvalidOption
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
    arguments = {} if choice.mode == "none" else _arguments(tuple(tools))
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


@functools.lru_cache(maxsize=64)
def _arguments(tools: tuple[str, ...]) -> Mapping[str, Mapping[str, Any]]:
    """The schemas of the tools' arguments, by name; an agent sends the same ones each time.

    One that cannot be enforced is any object, where its tool is not ``strict``.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for number, tool in enumerate(map(json.loads, tools)):
        function = tool.get("function") or tool
        schema = function.get("parameters") or {"type": "object"}
        where = f"tools[{number}].parameters"
        check_rules(schema, where)
        try:
            check_schema(schema, where)
        except BadSchema:
            if function.get("strict"):
                raise
            schema = {"type": "object"}
        found[str(function.get("name"))] = schema
    return found
