"""Answers as pandas has them: one for each row, and the facts of their turns beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from mlxnb.engine.schema import referred
from mlxnb.errors import BadSchema, InvalidOption
from mlxnb.records.frames import typed_frame
from mlxnb.sessions.crew import Outcome
from mlxnb.sessions.row_prompts import is_missing

if TYPE_CHECKING:
    import pandas as pd

    Answers = pd.Series[Any] | pd.DataFrame

_DTYPES = {"string": "string", "integer": "Int64", "number": "Float64", "boolean": "boolean"}
_NOTHING = (None,) * 6


@dataclass(frozen=True, slots=True)
class Cell:
    """One row's answer, or a dict of its properties; None: there is none.

    ``facts`` are those of its turn, in the order of `mlxnb.sessions.facts.COLUMNS`.
    """

    value: Any = None
    facts: tuple[Any, ...] = _NOTHING

    @classmethod
    def of(cls, outcome: Outcome, fields: Mapping[str, str] | None) -> Cell:
        """What came of a row's turn."""
        turn, error = outcome.turn, outcome.error
        if turn is None:
            return cls(None, (*_NOTHING[:5], error))
        value: Any = turn.text if outcome.good else None
        if outcome.good and fields is not None:
            error = turn.invalid
            value = None if error is not None else _properties(turn.parsed, fields)
        usage = turn.usage
        counts = usage.cached_tokens, usage.prefill_tokens, usage.output_tokens
        return cls(value, (turn.id, *counts, turn.finish_reason, error))


class ColumnFrame:
    """Collects answers.

    Parameters
    ----------
    marks
        What each row was asked, as a digest; None where it was not asked anything.
    schema
        Of the answers; None: they are texts.

    Raises
    ------
    BadSchema
        Its answers have no properties.
    """

    def __init__(self, index: pd.Index[Any], marks: Sequence[str | None], schema: Any) -> None:
        self.cells: dict[int, Cell] = {}
        self.fields = None if schema is None else schema_fields(schema)
        self._index, self._marks = index, marks

    @property
    def answered(self) -> int:
        """Rows that have an answer."""
        return sum(cell.value is not None for cell in self.cells.values())

    @property
    def asked(self) -> int:
        """Rows that are to have one."""
        return sum(mark is not None for mark in self._marks)

    @property
    def open(self) -> list[int]:
        """The numbers of rows that are to have an answer and have nothing yet."""
        asked = (at for at, mark in enumerate(self._marks) if mark is not None)
        return [at for at in asked if at not in self.cells]

    def take(self, earlier: Any) -> None:
        """Take over the answers of an earlier result, of rows that were asked the same.

        Raises
        ------
        InvalidOption
            It is no such result, or rows cannot be told apart.
        """
        from mlxnb.sessions.facts import Facts

        facts = getattr(earlier, "attrs", {}).get("turns")
        if not isinstance(facts, Facts) or len(facts) != len(earlier):
            raise InvalidOption("resume is what an earlier map has returned, with its .attrs")
        if not (self._index.is_unique and earlier.index.is_unique):
            raise InvalidOption("resume needs an index without duplicates; reset_index() makes one")
        found = {label: at for at, label in enumerate(earlier.index)}
        asked = facts["prompt_hash"].fillna("").tolist()
        for number, (label, mark) in enumerate(zip(self._index, self._marks, strict=True)):
            at = found.get(label)
            if at is not None and asked[at] == mark:
                row = [None if is_missing(v) else v for v in facts.iloc[at].tolist()]
                cell = Cell(_value(earlier, at), tuple(row[:-1]))
                if cell.facts[0] is not None and cell.facts[-1] is None and cell.value is not None:
                    self.cells[number] = cell

    def result(self) -> Answers:
        """A Series of texts, or a DataFrame with a column for each property of the schema."""
        import pandas as pd

        from mlxnb.sessions.facts import COLUMNS, Facts

        cells = [self.cells.get(number, Cell()) for number in range(len(self._index))]
        made: Answers
        if self.fields is None:
            values = [cell.value for cell in cells]
            made = pd.Series(values, index=self._index, dtype="string", name="answer")
        else:
            made = pd.DataFrame(dict(self._columns(cells)), index=self._index)
        rows = ([*cell.facts, mark] for cell, mark in zip(cells, self._marks, strict=True))
        made.attrs["turns"] = Facts(typed_frame(COLUMNS, rows).set_axis(self._index))
        return made

    def _columns(self, cells: Sequence[Cell]) -> Iterator[tuple[str, pd.Series[Any]]]:
        import pandas as pd

        assert self.fields is not None, "answers with properties have a schema"
        for name, dtype in self.fields.items():
            values = [None if cell.value is None else cell.value.get(name) for cell in cells]
            try:
                yield name, pd.Series(values, index=self._index, dtype=dtype)
            except (TypeError, ValueError, OverflowError):  # as a number beyond 64 bits
                yield name, pd.Series(values, index=self._index, dtype="object")


def schema_fields(schema: Any) -> dict[str, str]:
    """The properties of a schema, and the dtypes of their columns.

    Parameters
    ----------
    schema
        A pydantic model or a JSON schema.

    Raises
    ------
    BadSchema
        It is no schema of an object with properties.
    """
    plain = schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        plain = schema.model_json_schema(by_alias=False)
    whole, seen = plain, {None}
    while isinstance(plain, Mapping) and (reference := plain.get("$ref")) not in seen:
        seen.add(reference)  # so pydantic writes a model that holds others of its kind
        plain = referred(whole, str(reference))
    properties = plain.get("properties") if isinstance(plain, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        told = "schema is a pydantic model or a JSON schema of an object with properties"
        raise BadSchema(told, param="schema")
    return {str(name): _dtype(property) for name, property in properties.items()}


def _dtype(property: Any) -> str:
    kind = property.get("type") if isinstance(property, Mapping) else None
    return _DTYPES.get(kind, "object") if isinstance(kind, str) else "object"


def _properties(value: Any, fields: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {name: value.get(name) for name in fields}
    return {name: getattr(value, name) for name in fields}


def _value(earlier: Any, at: int) -> Any:
    """The answer that a row of an earlier result has."""
    if earlier.ndim == 1:
        return None if is_missing(earlier.iloc[at]) else earlier.iloc[at]
    row = {str(name): earlier[name].iloc[at] for name in earlier.columns}
    return {name: None if is_missing(value) else value for name, value in row.items()}
