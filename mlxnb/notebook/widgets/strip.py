"""The tokens of a turn as an inspector shows them: runs of one origin, texts, counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from mlxnb.records.colours import ORIGINS
from mlxnb.sessions.spelled import whole

if TYPE_CHECKING:
    import pandas as pd

Strip = dict[str, Any]


def strip(tokens: pd.DataFrame) -> Strip:
    """What a strip of tokens shows, as JSON values.

    Parameters
    ----------
    tokens
        As ``engine.tokens()`` gives it.

    Returns
    -------
    dict
        ``counts``: tokens by origin, those that occur. ``runs``: ``[origin, start, end]``.
        ``spans``: ``[role, message, start, end]``. ``diverged``: a position or None. ``prompt``:
        tokens of the prompt. ``ids`` and ``texts``: a value a token; None where not shown.
        ``read``: the texts with their characters whole.
    """
    origins = tokens["origin"].tolist()
    places = zip(tokens["role"], _plain(tokens["message"]), strict=True)
    parted = tokens.index[tokens["diverged"].fillna(False)]
    shown = bool(tokens["token_id"].notna().all())
    texts = tokens["text"].fillna("").tolist() if shown else None
    return {
        "counts": {name: origins.count(name) for name in ORIGINS if name in origins},
        "runs": [[origin, start, end] for origin, start, end in _runs(origins)],
        "spans": [[*place, start, end] for place, start, end in _runs(list(places))],
        "diverged": int(tokens["position"][parted[0]]) if len(parted) else None,
        "prompt": sum(origin != "generated" for origin in origins),
        "ids": tokens["token_id"].astype(int).tolist() if shown else None,
        "texts": texts,
        "read": None if texts is None else whole(texts),
    }


def _runs(values: Sequence[Any]) -> Iterator[tuple[Any, int, int]]:
    """Equal values side by side: the value, and the positions from where to before where."""
    start = 0
    for value, group in groupby(values):
        end = start + len(list(group))
        yield value, start, end
        start = end


def _plain(column: pd.Series[Any]) -> list[int | None]:
    return [
        None if value is None else int(value)
        for value in column.astype(object).where(column.notna(), None)
    ]
