"""How much of each prompt was reused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxnb.plot.canvas import axes, checked, empty, legend, name_ticks, stack
from mlxnb.records.colours import ORIGINS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PERCENTAGES = 24
"""Bars that have their share of reused tokens written above them, at most."""


def reuse(df: pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
    """A bar a turn: its prompt's tokens, reused and computed, and the reused share in percent.

    Parameters
    ----------
    df
        As ``engine.turns(wide=True)`` gives it; without its columns all reused tokens count as
        those in memory. None: all turns of ``mlxnb.engine()``.
    ax
        None: a new figure's.

    Raises
    ------
    InvalidOption
        The frame is another one.
    ImportError
        matplotlib is not installed.
    """
    needed = ("turn_id", "cached_tokens", "prefill_tokens", "reuse")
    found = checked(_frame(df), needed, "engine.turns()")
    ax = axes(ax)
    ax.set_xlabel("turn")
    ax.set_ylabel("prompt (tokens)")
    if not len(found):
        return empty(ax, "no turns yet")
    layers = _layers(found)
    stack(ax, range(len(found)), layers, ORIGINS)
    _shares(ax, found)
    name_ticks(ax, found["turn_id"].tolist())
    legend(ax)
    return ax


def _frame(df: pd.DataFrame | None) -> pd.DataFrame:
    if df is not None:
        return df
    from mlxnb import engine

    return engine().turns(wide=True)


def _layers(df: pd.DataFrame) -> dict[str, list[int]]:
    """Tokens of each turn by where they came from."""
    hot, disk = _column(df, "hot_tokens"), _column(df, "disk_tokens")
    cached = _column(df, "cached_tokens")
    rest = [c - h - d for c, h, d in zip(cached, hot, disk, strict=True)]
    return {
        "hot": hot,
        "memory": rest,
        "disk": disk,
        "computed": _column(df, "prefill_tokens"),
    }


def _column(df: pd.DataFrame, name: str) -> list[int]:
    return df[name].fillna(0).astype(int).tolist() if name in df else [0] * len(df)


def _shares(ax: Axes, df: pd.DataFrame) -> None:
    """The reused share above each bar, where there are few enough to read."""
    if len(df) > PERCENTAGES:
        return
    tops = (df["cached_tokens"] + df["prefill_tokens"]).fillna(0).astype(int)
    for at, (top, share) in enumerate(zip(tops, df["reuse"].fillna(0.0), strict=True)):
        ax.annotate(
            f"{share:.0%}",
            (at, top),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize="small",
        )
    ax.margins(y=0.1)
