"""The facts of a column's turns, where pandas carries them along: in ``attrs``."""

from __future__ import annotations

from typing import Any

import pandas as pd

COLUMNS = {
    "turn_id": "string",
    "cached_tokens": "Int64",
    "prefill_tokens": "Int64",
    "output_tokens": "Int64",
    "finish_reason": "string",
    "error": "string",
    "prompt_hash": "string",
}


class Facts(pd.DataFrame):
    """A frame that can stand in ``attrs``: to be read, not written.

    pandas copies ``attrs`` with every result and compares them where it puts results together,
    which a plain frame does not survive. So this one is its own copy, and two of them are equal
    as wholes or not at all.
    """

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Facts:
        return self

    def __eq__(self, other: object) -> Any:
        return self.equals(other) if isinstance(other, Facts) else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        return not self == other if isinstance(other, Facts) else super().__ne__(other)

    __hash__ = None
