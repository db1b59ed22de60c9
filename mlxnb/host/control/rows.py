"""Records as JSON and back: what a host's engine shows, for another process to make frames of."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from mlxnb.records.turn import Timing, Turn, TurnRecord, Usage

T = TypeVar("T")

_WITH_IDS = ("prompt", "output", "spans", "chunks", "instants")
"""Fields of a turn's record that have a place for each token; they stay in their host."""


def to_json(row: object) -> Any:
    """A dataclass, or a list of them, as JSON values."""
    return to_jsonable_python(row, inf_nan_mode="null")


def numbered(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of sampling whose token ids are numbers again; in JSON they are strings."""
    bias = options.get("logit_bias")
    if not isinstance(bias, dict):
        return dict(options)
    ids = {int(i) if i.removeprefix("-").isdecimal() else i: value for i, value in bias.items()}
    return {**options, "logit_bias": ids}


def turn_to_json(turn: Turn) -> dict[str, Any]:
    """A turn; where it has choices it is the first of them, which is not said again."""
    alone: dict[str, Any] = to_json(replace(turn, choices=[], reader=None, read=None))
    return alone | {"choices": [turn_to_json(other) for other in turn.choices[1:]]}


def turn_from_json(value: Mapping[str, Any]) -> Turn:
    """The turn that ``turn_to_json`` was given."""
    turn = from_json(Turn, value)
    if turn.choices:
        turn.choices.insert(0, turn)
    return turn


def from_json(kind: type[T], value: Any) -> T:
    """The dataclass that ``to_json`` was given."""
    return TypeAdapter(kind).validate_python(value, strict=False)


def record_to_json(record: TurnRecord) -> dict[str, Any]:
    """A turn's record without its tokens."""
    names = (field.name for field in fields(record) if field.name not in _WITH_IDS)
    return {name: to_json(getattr(record, name)) for name in names}


def record_from_json(value: Mapping[str, Any]) -> TurnRecord:
    """The record; fields that this version does not know are left out."""
    known = {field.name for field in fields(TurnRecord)}
    named = {name: given for name, given in value.items() if name in known}
    return TurnRecord(
        **named
        | {
            "started_at": dt.datetime.fromisoformat(named["started_at"]),
            "usage": from_json(Usage, named["usage"]),
            "timing": from_json(Timing, named["timing"]),
        }
    )
