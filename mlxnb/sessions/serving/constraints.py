"""What a request demands of its answer's form and cannot have."""

from __future__ import annotations

from mlxnb.errors import InvalidOption
from mlxnb.sessions.ask import Ask


def check_form(ask: Ask) -> None:
    """Refuse a form that an answer is not held to, rather than ignore it.

    Raises
    ------
    InvalidOption
        The message names the field.
    """
    for field, demanded in (
        ("text.format", ask.schema is not None),
        ("tool_choice", ask.tool_choice.mode == "required" or bool(ask.tool_choice.names)),
        ("parallel_tool_calls", bool(ask.tools) and not ask.tool_choice.parallel),
        ("thinking", ask.thinking_budget is not None),
    ):
        if demanded:
            raise InvalidOption(f"{field}: answers cannot be held to it", param=field)
