"""One turn's time, from its arrival to its last token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxnb.plot.canvas import axes, checked, empty
from mlxnb.records.colours import PHASES
from mlxnb.records.phase_row import COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from mlxnb.records.turn import Turn


def timeline(turn: Turn | str | pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
    """A line a phase that took time: when it began and ended; prefill by chunks, decode by tokens.

    Parameters
    ----------
    turn
        A turn, its id, or what ``engine.timeline()`` gives; None: the last turn of
        ``mlxnb.engine()``.
    ax
        None: a new figure's.

    Raises
    ------
    InvalidOption
        The frame is another one.
    ImportError
        matplotlib is not installed.
    UnknownTurn
        No such turn is kept.
    """
    found = checked(_frame(turn), COLUMNS, "engine.timeline()")
    ax = axes(ax, height=2.6)
    ax.set_xlabel("time since arrival (s)")
    if not len(found):
        return empty(ax, "nothing of this turn's time is kept")
    lasting = set(found["phase"][found["end_s"] > found["start_s"]])
    phases = [phase for phase in PHASES if phase in lasting]
    for line, phase in enumerate(phases):
        _line(ax, line, phase, found[found["phase"] == phase])
    ax.set_yticks(range(len(phases)), [phase.replace("_", "-") for phase in phases])
    ax.set_ylim(len(phases) - 0.5, -0.5)
    ax.set_xlim(0, max(float(found["end_s"].max()), 1e-9) * 1.12)
    ax.tick_params(axis="y", length=0)
    return ax


def _frame(turn: Turn | str | pd.DataFrame | None) -> pd.DataFrame:
    import pandas as pd

    if isinstance(turn, pd.DataFrame):
        return turn
    from mlxnb import engine

    return engine().timeline(turn)


def _line(ax: Axes, line: int, phase: str, rows: pd.DataFrame) -> None:
    """The spans of one phase, with its tokens at the end."""
    starts, ends = rows["start_s"].tolist(), rows["end_s"].tolist()
    spans = [(start, end - start) for start, end in zip(starts, ends, strict=True)]
    edge = ax.get_facecolor() if len(spans) <= 200 else "none"
    colour = PHASES[phase].fill
    ax.broken_barh(spans, (line - 0.35, 0.7), facecolors=colour, edgecolors=edge, linewidth=0.6)
    tokens = int(rows["tokens"].fillna(0).sum())
    if tokens:
        ax.annotate(
            f"{tokens:,} token{'' if tokens == 1 else 's'}",
            (max(ends), line),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
