"""What all pictures have in common: axes to draw on, bars, and how they look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlxnb.errors import InvalidOption

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from mlxnb.records.colours import Colour

TICKS = 24
"""Names along an axis, at most."""


def axes(ax: Axes | None, width: float = 7.0, height: float = 3.6) -> Axes:
    """The given axes, or those of a new figure of that size in inches.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    InvalidOption
        ``ax`` is something else.
    """
    try:
        from matplotlib import pyplot
        from matplotlib.axes import Axes as Drawable
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'mlxnb[plot]'") from None
    if not (ax is None or isinstance(ax, Drawable)):
        raise InvalidOption(f"ax is matplotlib's Axes, not {type(ax).__name__}")
    made: Axes = ax if ax is not None else _new(pyplot, width, height)
    made.spines[["top", "right"]].set_visible(False)
    return made


def _new(pyplot: Any, width: float, height: float) -> Axes:
    _, made = pyplot.subplots(figsize=(width, height), layout="constrained")
    return made  # type: ignore[no-any-return]


def checked(df: pd.DataFrame, needed: Iterable[str], what: str) -> pd.DataFrame:
    """The frame, if it has these columns.

    Raises
    ------
    InvalidOption
        A column is missing; ``what`` gives frames that have it.
    """
    missing = [name for name in needed if name not in getattr(df, "columns", ())]
    if missing:
        raise InvalidOption(f"the frame has no column {missing[0]!r}; {what} has it")
    return df


def stack(
    ax: Axes,
    at: Sequence[int],
    layers: Mapping[str, Sequence[float]],
    colours: Mapping[str, Colour],
) -> None:
    """Bars of several layers, one upon the other; layers that are 0 everywhere are left out.

    Parameters
    ----------
    layers
        By their names: a height for each of ``at``.
    colours
        The layers' colours by name.
    """
    base = [0.0] * len(at)
    for name, heights in layers.items():
        if any(heights):
            bars(ax, at, heights, base, colours[name], name)
            base = [low + high for low, high in zip(base, heights, strict=True)]


def bars(
    ax: Axes,
    at: Sequence[int],
    heights: Sequence[float],
    base: Sequence[float],
    colour: Colour,
    label: str,
) -> None:
    """One layer of bars, with the page's own colour between it and its neighbours."""
    edge = ax.get_facecolor() if len(at) <= 60 else "none"
    ax.bar(
        at,
        heights,
        0.8,
        base,
        color=colour.fill,
        edgecolor=edge,
        linewidth=0.6,
        label=label.replace("_", "-"),
    )


def name_ticks(ax: Axes, names: Sequence[str]) -> None:
    """Names below bars that stand at 0, 1, …; of many every second, third, … one."""
    step = -(-len(names) // TICKS) or 1
    shown = range(0, len(names), step)
    long = max((len(names[at]) for at in shown), default=0) * len(shown) > 60
    labels = [names[at] for at in shown]
    ax.set_xticks(shown, labels, rotation=90 if long else 0, parse_math=False)
    ax.set_xlim(-0.6, max(len(names), 1) - 0.4)


def legend(ax: Axes, columns: int = 4) -> None:
    """The legend above the picture, where there is anything to name."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=columns,
            frameon=False,
            borderaxespad=0.2,
            columnspacing=1.2,
            handlelength=1.2,
        )


def empty(ax: Axes, said: str) -> Axes:
    """Say that there is nothing to draw."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(0.5, 0.5, said, ha="center", va="center", transform=ax.transAxes, alpha=0.7)
    return ax
