"""From what a request says of tools and schemas to the form of its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlxnb.errors import BadSchema, InvalidOption
from mlxnb.sessions.ask import ToolChoice
from mlxnb.sessions.forms import form_of

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def tool(name: str, parameters: Any = None) -> str:
    return json.dumps({"type": "function", "function": {"name": name, "parameters": parameters}})


def test_free_text_has_no_form() -> None:
    assert form_of((), ToolChoice(), None, None) is None


def test_tools_that_must_not_be_called_are_none() -> None:
    assert form_of((tool("f"),), ToolChoice("none"), None, None) is None


def test_tools_are_known_by_name_with_their_schemas() -> None:
    form = form_of((tool("f", SCHEMA), tool("g")), ToolChoice(), None, None)
    assert form is not None
    assert form.tools == {"f": SCHEMA, "g": {"type": "object"}}
    assert not form.required


def test_a_choice_is_taken_over() -> None:
    form = form_of((tool("f"), tool("g")), ToolChoice("required", ("g",), False), None, 7)
    assert form is not None
    assert (form.required, form.parallel, form.reasoning_tokens) == (True, False, 7)
    assert list(form.callable_tools) == ["g"]


def test_a_schema_is_read() -> None:
    form = form_of((), ToolChoice(), json.dumps(SCHEMA), None)
    assert form is not None
    assert form.schema == SCHEMA


def test_a_choice_of_a_tool_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no tool 'h'") as raised:
        form_of((tool("f"),), ToolChoice("required", ("h",)), None, None)
    assert raised.value.param == "tool_choice"


def test_a_call_that_must_be_and_cannot_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no tools"):
        form_of((), ToolChoice("required"), None, None)


def test_a_tool_with_a_bad_schema_is_named() -> None:
    with pytest.raises(BadSchema, match=r"^tools\[1\]\.parameters\.type: "):
        form_of((tool("f"), tool("g", {"type": "objct"})), ToolChoice(), None, None)
