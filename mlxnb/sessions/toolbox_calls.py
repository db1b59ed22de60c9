"""What came of the calls of a session's functions, as data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mlxnb.records.frames import typed_frame

if TYPE_CHECKING:
    import pandas as pd

CALLS: dict[str, str] = {
    "call_id": "string",
    "turn_id": "string",
    "name": "string",
    "arguments": "string",
    "result": "string",
    "error": "string",
    "seconds": "Float64",
    "confirmed": "boolean",
}


@dataclass(frozen=True, slots=True)
class Called:
    """One call that a model made, and what it was told.

    Attributes
    ----------
    arguments
        As the model gave them.
    result, error
        What it was told; one of the two is None.
    seconds
        How long the function ran; None: it was not called.
    confirmed
        What was answered when it was asked; None: nobody was asked.
    length
        Characters of what the function returned or raised, before it was cut; None: as told.
    """

    call_id: str
    turn_id: str
    name: str
    arguments: dict[str, Any]
    result: str | None = None
    error: str | None = None
    seconds: float | None = None
    confirmed: bool | None = None
    length: int | None = None

    @property
    def told(self) -> str:
        """What the model was told."""
        return (self.result if self.error is None else self.error) or ""

    def cut(self, most: int) -> Called:
        """The same call with less of its result: that many characters, and a note."""
        length = self.length or len(self.told)
        note = "the rest does not fit the context: ask for less"
        text = f"{self.told[:most]}\n[cut: {length:,} characters in all; {note}]"
        if self.error is None:
            return replace(self, length=length, result=text)
        return replace(self, length=length, error=text)


def calls_frame(calls: Iterable[Called]) -> pd.DataFrame:
    """One row a call; ``arguments`` as JSON."""
    return typed_frame(CALLS, (_row(call) for call in calls))


def _row(call: Called) -> list[Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return [arguments if name == "arguments" else getattr(call, name) for name in CALLS]
