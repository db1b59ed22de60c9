"""Schemas are checked before anything runs, and the message names the place."""

from __future__ import annotations

from typing import Any

import pytest

from mlxnb.engine import schema as schema_module
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
        ({"$ref": "#"}, "schema"),
        (field({"$ref": "#/properties/a/items"}), "schema.properties.a.items"),
        ({"$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}}}, "schema.$defs.x"),
        ({"$defs": {"x/": {"anyOf": [{"$ref": "#/$defs/x~1"}]}}}, "schema.$defs.x/"),
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
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
        field({"$ref": "#"}),
    ],
)
def test_a_good_schema_passes(schema: dict[str, Any]) -> None:
    check_schema(schema, "schema")


def test_what_a_pattern_may_not_have_is_named() -> None:
    with pytest.raises(BadSchema) as raised:
        check_schema(field({"type": "string", "pattern": "(?=a)b"}), "schema")
    assert str(raised.value) == (
        "schema.properties.a.items: regex parse error: error: look-around, including look-ahead "
        "and look-behind, is not supported"
    )


def test_a_schema_too_deep_is_bad() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(BadSchema):
        check_schema(deep, "schema")


def test_many_references_are_followed_once_each() -> None:
    names = [f"x{number}" for number in range(40)]
    parts = {
        name: {"allOf": [{"$ref": f"#/$defs/{other}"} for other in names[at + 1 :]]}
        for at, name in enumerate(names[:-1])
    }
    looked = schema_module.referred
    with pytest.MonkeyPatch.context() as patch:
        seen: list[str] = []
        patch.setattr(schema_module, "referred", lambda s, r: seen.append(r) or looked(s, r))
        assert schema_module._circular({"$defs": {**parts, names[-1]: {"type": "string"}}}) is None
    assert len(seen) == 39


def test_a_long_chain_of_references_is_too_deep() -> None:
    chain = {f"x{number}": {"$ref": f"#/$defs/x{number + 1}"} for number in range(5000)}
    with pytest.raises(BadSchema, match="nested too deeply"):
        check_schema({"$ref": "#/$defs/x0", "$defs": chain}, "schema")


def test_what_is_not_json_is_no_schema() -> None:
    with pytest.raises(BadSchema, match="schema: is not JSON"):
        read_schema("{", "schema")
