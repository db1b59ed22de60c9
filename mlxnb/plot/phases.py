"""How long the phases of each turn took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxnb.plot.canvas import axes, checked, empty, legend, name_ticks, stack
from mlxnb.records.colours import PHASES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def turns(df: pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
    """A bar a turn: seconds from its arrival to its last token, by phase.

    Parameters
    ----------
    df
        As ``engine.turns()`` gives it; None: all turns of ``mlxnb.engine()``.
    ax
        None: a new figure's.

    Raises
    ------
    InvalidOption
        The frame is another one.
    ImportError
        matplotlib is not installed.
    """
    columns = {name: f"{name}_s" for name in PHASES}
    found = checked(_frame(df), ["turn_id", *columns.values()], "engine.turns()")
    ax = axes(ax)
    ax.set_xlabel("turn")
    ax.set_ylabel("time (s)")
    if not len(found):
        return empty(ax, "no turns yet")
    layers = {name: found[column].fillna(0.0).tolist() for name, column in columns.items()}
    stack(ax, range(len(found)), layers, PHASES)
    name_ticks(ax, found["turn_id"].tolist())
    legend(ax, 6)
    return ax


def _frame(df: pd.DataFrame | None) -> pd.DataFrame:
    if df is not None:
        return df
    from mlxnb import engine

    return engine().turns()
