"""What an answer is to look like, as a session is asked for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from mlxnb.engine.form import Form
from mlxnb.errors import BadSchema, InvalidOption
from mlxnb.records.turn import Reading, Turn
from mlxnb.sessions.ask import ToolChoice
from mlxnb.sessions.forms import form_of

MODES = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class Shape:
    """A schema for the text, and which tools may or must be called; neither: as it comes.

    Attributes
    ----------
    schema
        A JSON schema, as JSON; None: free text.
    choice
        None: the model may call as it likes, unchecked.
    kind
        The pydantic model that the schema is of; None: it is a schema alone.
    """

    schema: str | None = None
    choice: ToolChoice | None = None
    kind: type[BaseModel] | None = None

    @classmethod
    def of(cls, schema: Any, tool_choice: str | None) -> Shape:
        """What was asked for.

        Parameters
        ----------
        schema
            A pydantic model, or a JSON schema; None: free text. Of a model that does not say what
            it thinks of further fields there are none.
        tool_choice
            ``auto``, ``none``, ``required`` or a tool's name; None: nothing is enforced.

        Raises
        ------
        BadSchema
            It is neither.
        InvalidOption
            ``tool_choice`` is no string.
        """
        kind = schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None
        plain = schema if kind is None else _closed(kind.model_json_schema())
        return cls(_packed(plain), _choice(tool_choice), kind)

    def form(self, tools: Sequence[str]) -> Form | None:
        """What holds an answer to it; None: nothing does.

        Raises
        ------
        BadSchema, InvalidOption
            See `form_of`.
        """
        choice = self.choice or ToolChoice("none")
        return form_of(tools if self.choice is not None else (), choice, self.schema, None)

    def shown(self, tools: Sequence[str]) -> tuple[str, ...]:
        """The tools that the model is shown."""
        hidden = self.choice is not None and self.choice.mode == "none"
        return () if hidden else tuple(tools)

    def mark(self, turn: Turn) -> None:
        """Let a turn, and its choices, be read as the schema has it.

        What is left of a call that was cut is no text, where there had to be calls.
        """
        for each in turn.choices or [turn]:
            if self.schema is not None:
                each.reader = self._read
            forced = self.choice is not None and self.choice.mode == "required"
            if forced and each.finish_reason in ("length", "cancelled"):
                each.text = ""

    def _read(self, turn: Turn) -> Reading:
        """The value of a turn's text; validators of a pydantic model may raise what they like."""
        try:
            if self.kind is None:
                return Reading(json.loads(turn.text))
            return Reading(self.kind.model_validate_json(turn.text))
        except Exception as error:
            return Reading(None, _reason(turn, error))


def forces(tool_choice: Any) -> bool:
    """Whether an answer must be calls, and can be nothing else."""
    return tool_choice not in (None, "auto", "none")


def _closed(schema: Any) -> Any:
    """A schema whose objects have the properties that they name, unless it says otherwise.

    pydantic ignores others where nobody has decided; a model that writes would invent them.
    """
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _closed(value) for name, value in schema.items()}
    if made.get("type") == "object" and isinstance(made.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


def _packed(schema: Any) -> str | None:
    if schema is None:
        return None
    if not isinstance(schema, Mapping):
        told = "schema is a pydantic model or a JSON schema, not"
        raise BadSchema(f"{told} {type(schema).__name__}", param="schema")
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSchema(f"schema: {error}", param="schema") from None


def _choice(asked: str | None) -> ToolChoice | None:
    if asked is None:
        return None
    if not isinstance(asked, str):
        told = f"tool_choice is {', '.join(MODES)} or a tool's name, not {asked!r}"
        raise InvalidOption(told, param="tool_choice")
    if asked == "auto":
        return ToolChoice("auto")
    if asked == "none":
        return ToolChoice("none")
    if asked == "required":
        return ToolChoice("required")
    return ToolChoice("required", (asked,), parallel=False)


def _reason(turn: Turn, error: Exception) -> str:
    """Why there is no value, in a line and without the text."""
    if turn.finish_reason not in ("stop", "tool_calls"):
        return f"the answer did not come to its end: {turn.finish_reason}"
    if turn.tool_calls and not turn.text.strip():
        return "the answer is a call of a tool"
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'answer'}: {first['msg']}"
    return f"{type(error).__name__}: {error}"
