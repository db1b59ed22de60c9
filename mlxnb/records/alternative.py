"""A token that was drawn, or could have been."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: dict[str, str] = {
    "position": "Int64",
    "token_id": "Int64",
    "token": "string",
    "logprob": "float64",
    "rank": "Int64",
    "taken": "boolean",
}


@dataclass(frozen=True, slots=True)
class Alternative:
    """One token at one place of an answer.

    Attributes
    ----------
    logprob
        Natural logarithm of its probability, after penalties, biases and forms, before temperature
        and filters.
    rank
        How many tokens are likelier there.
    taken
        Whether it is the one that was drawn.
    text
        What it stands for.
    """

    token_id: int
    logprob: float
    rank: int
    taken: bool
    text: str = ""


def alternatives_frame(places: Iterable[Sequence[Alternative]]) -> pd.DataFrame:
    """One row an alternative; ``position`` counts the answer's tokens from 0."""
    from mlxnb.records.frames import typed_frame

    rows = (
        (position, each.token_id, each.text, each.logprob, each.rank, each.taken)
        for position, place in enumerate(places)
        for each in place
    )
    return typed_frame(COLUMNS, rows)
