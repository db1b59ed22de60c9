"""What came of the calls of a session's functions, as data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
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
    """

    call_id: str
    turn_id: str
    name: str
    arguments: dict[str, Any]
    result: str | None = None
    error: str | None = None
    seconds: float | None = None
    confirmed: bool | None = None


def calls_frame(calls: Iterable[Called]) -> pd.DataFrame:
    """One row a call; ``arguments`` as JSON."""
    return typed_frame(CALLS, (_row(call) for call in calls))


def _row(call: Called) -> list[Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return [arguments if name == "arguments" else getattr(call, name) for name in CALLS]
