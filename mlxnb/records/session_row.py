"""One row of the sessions' frame."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A conversation as the frame shows it.

    ``tokens`` is the length of its history, ``cached_tokens`` how many of these its next turn
    would reuse now (None: the history is rendered anew each time), ``hot`` whether the last
    turn's live KV is kept for it.
    """

    name: str
    model: str
    turns: int
    tokens: int | None
    cached_tokens: int | None
    hot: bool
    history: Literal["exact", "template"]
    forked_from: str | None
    created_at: dt.datetime
    last_used: dt.datetime
