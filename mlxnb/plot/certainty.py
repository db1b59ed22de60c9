"""How sure a model was of each token of an answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mlxnb.errors import InvalidOption
from mlxnb.plot.canvas import axes, bars, checked, empty, legend, name_ticks
from mlxnb.records.alternative import COLUMNS
from mlxnb.records.colours import ORIGINS
from mlxnb.records.turn import Turn

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def logprobs(turn: Turn | pd.DataFrame, ax: Axes | None = None) -> Axes:
    """A bar a token of the answer: its probability; a dot: that of each alternative.

    Parameters
    ----------
    turn
        A turn that was asked for log-probabilities, or its ``logprobs``.
    ax
        None: a new figure's.

    Raises
    ------
    InvalidOption
        The turn has none, or it is no turn.
    ImportError
        matplotlib is not installed.
    """
    found = checked(_frame(turn), COLUMNS, "turn.logprobs")
    ax = axes(ax)
    ax.set_xlabel("token of the answer")
    ax.set_ylabel("probability (0–1)")
    ax.set_ylim(0, 1)
    if not len(found):
        return empty(ax, "the answer has no tokens")
    taken = found[found["taken"]].sort_values("position")
    at = taken["position"].astype(int).tolist()
    sure = [math.exp(value) for value in taken["logprob"]]
    bars(ax, at, sure, [0.0] * len(at), ORIGINS["generated"], "taken")
    _others(ax, found[~found["taken"]])
    name_ticks(ax, [_printable(text) for text in taken["token"].fillna("")])
    legend(ax)
    return ax


def _frame(turn: Turn | pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    if not isinstance(turn, pd.DataFrame | Turn):
        told = "the turn itself, or its .logprobs: only these have log-probabilities"
        raise InvalidOption(f"logprobs takes {told}, not {turn!r}")
    frame = turn if isinstance(turn, pd.DataFrame) else turn.logprobs
    if frame is None:
        raise InvalidOption(
            "this turn has no log-probabilities; ask for them: session.send(text, logprobs=5)"
        )
    return frame


def _others(ax: Axes, rows: pd.DataFrame) -> None:
    """What was not taken, as dots."""
    from matplotlib import rcParams

    if len(rows):
        ax.plot(
            rows["position"].astype(int).tolist(),
            [math.exp(value) for value in rows["logprob"]],
            linestyle="none",
            marker="o",
            markersize=3,
            color=rcParams["text.color"],
            alpha=0.6,
            label="alternatives",
        )


def _printable(text: str) -> str:
    """A token as the font can show it: spaces and newlines as signs, what it lacks as a box."""
    from matplotlib import font_manager

    font = font_manager.get_font(font_manager.findfont(font_manager.FontProperties()))
    signs = text.replace("\n", "↵").replace("\t", "⇥").replace(" ", "·")
    return "".join(c if font.get_char_index(ord(c)) else "□" for c in signs) or "∅"
