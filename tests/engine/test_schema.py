"""Schemas are checked before anything runs, and the message names the place."""

from __future__ import annotations

from typing import Any

import pytest

from mlxnb.engine.schema import check_schema, read_schema
from mlxnb.errors import BadSchema


def field(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "array", "items": schema}}}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ([1], "schema"),
        ("text", "schema"),
        ({"type": "objct"}, "schema.type"),
        (field({"type": "int"}), "schema.properties.a.items.type"),
        (field({"$ref": "#/nowhere"}), "schema.properties.a.items"),
        (field({"if": {}}), "schema.properties.a.items"),
        ({"anyOf": [{"type": "string"}, {"if": {}}]}, "schema.anyOf[1]"),
        ({"$defs": {"x": {"pattern": "("}}, "$ref": "#/$defs/x"}, "schema.$defs.x"),
    ],
)
def test_a_bad_schema_names_the_path(schema: Any, place: str) -> None:
    with pytest.raises(BadSchema) as raised:
        check_schema(schema, "schema")
    assert str(raised.value).startswith(f"{place}: ")
    assert raised.value.param == "schema"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        field({"type": ["string", "null"], "maxLength": 3}),
        {"$defs": {"x": {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}}}},
        {"type": "string", "format": "date-time"},
        {"enum": ["a", 1, None]},
    ],
)
def test_a_good_schema_passes(schema: dict[str, Any]) -> None:
    check_schema(schema, "schema")


def test_a_schema_too_deep_is_bad() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(BadSchema):
        check_schema(deep, "schema")


def test_what_is_not_json_is_no_schema() -> None:
    with pytest.raises(BadSchema, match="schema: is not JSON"):
        read_schema("{", "schema")
