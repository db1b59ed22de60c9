"""The prefix cache as trees that grow to the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mlxnb.plot.canvas import axes, checked, empty, legend
from mlxnb.records.colours import ORIGINS, REUSED
from mlxnb.records.forest import Run, forest
from mlxnb.records.frames import BLOCKS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Place = tuple[Run, int]
"""A run, and the topmost of the lanes that it takes."""
MOST = 60
"""Lanes, at most: what is in memory comes before what is on disk alone."""


def tree(df: pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
    """What the prefix cache holds by position; what several chains share stands across them.

    A lane is one chain of blocks, or the live KV of the session that is named beside it. A thick
    frame is pinned, a hatched piece goes next, a diamond is a checkpoint. Of very many chains some
    are left out, those on disk alone first; the title counts them.

    Parameters
    ----------
    df
        As ``engine.prefix_cache()`` gives it, with ``wide=True`` what goes next is marked.
        None: that of ``mlxnb.engine()``.
    ax
        None: a new figure's.

    Raises
    ------
    InvalidOption
        The frame is another one.
    ImportError
        matplotlib is not installed.
    """
    roots, hidden = _shown(forest(checked(_frame(df), BLOCKS, "engine.prefix_cache()")))
    places = list(_places(roots))
    lanes = _lanes(roots)
    ax = axes(ax, height=min(1.4 + 0.3 * lanes, 8))
    if hidden:
        ax.set_title(f"{hidden:,} more chains are not shown", loc="right", fontsize="small")
    ax.set_xlabel("position (tokens)")
    ax.set_ylabel("chains")
    if not places:
        return empty(ax, "the prefix cache is empty")
    _pieces(ax, [place for place in places if not place[0].is_checkpoint])
    _marks(ax, [place for place in places if place[0].is_checkpoint])
    ax.set_xlim(0, max(run.end for run, _ in places) * 1.02 + 1)
    ax.set_ylim(lanes, 0)
    owned = [(lane + 0.5, run.owner) for run, lane in places if run.owner]
    ax.set_yticks([at for at, _ in owned], [name for _, name in owned], parse_math=False)
    ax.tick_params(axis="y", length=0)
    legend(ax, 6)
    return ax


def _shown(roots: list[Run]) -> tuple[list[Run], int]:
    """As many trees as there is room for, in their order, and how many chains the others are."""
    room = MOST
    chosen: set[int] = set()
    for root in sorted(roots, key=lambda root: root.tier == "disk"):
        wide = 0 if root.is_checkpoint else root.leaves
        if wide <= room or not chosen:
            chosen.add(id(root))
            room -= wide
    kept = [root for root in roots if id(root) in chosen]
    return kept, _lanes(roots) - _lanes(kept)


def _lanes(roots: list[Run]) -> int:
    return sum(root.leaves for root in roots if not root.is_checkpoint)


def _frame(df: pd.DataFrame | None) -> pd.DataFrame:
    if df is not None:
        return df
    from mlxnb import engine

    return engine().prefix_cache(wide=True)


def _places(roots: list[Run]) -> Iterator[Place]:
    """Each run with its lane; a checkpoint has that of what it stands on."""
    lane = 0
    for root in roots:
        lanes = {id(root): lane}
        for run in root.walk():
            free = lanes[id(run)]
            yield run, free
            for child in run.children:
                lanes[id(child)] = free if not child.is_checkpoint else lanes[id(run)]
                free += 0 if child.is_checkpoint else child.leaves
        lane += 0 if root.is_checkpoint else root.leaves


def _pieces(ax: Axes, places: Sequence[Place]) -> None:
    """The runs by where they are, what is pinned, and what goes next: a layer each."""
    for origin in REUSED:
        own = [place for place in places if _origin(place[0]) == origin]
        look = {"color": ORIGINS[origin].fill, "edgecolor": ax.get_facecolor(), "linewidth": 0.6}
        _layer(ax, own, origin, **look)
    pinned = [place for place in places if place[0].pinned]
    _layer(ax, pinned, "pinned", fill=False, edgecolor=_ink(), linewidth=2)
    goes = [
        (Run([row], leaves=run.leaves), lane)
        for run, lane in places
        for row in run.rows
        if row.get("evict_order") == 1
    ]
    _layer(ax, goes, "goes next", fill=False, edgecolor=_ink(), linewidth=0.6, hatch="/////")


def _origin(run: Run) -> str:
    return "hot" if run.kind == "hot" else run.tier


def _layer(ax: Axes, places: Sequence[Place], label: str, **look: Any) -> None:
    """Runs that look alike, as rectangles across the lanes that share them."""
    if not places:
        return
    ax.barh(
        [lane + run.leaves / 2 for run, lane in places],
        [run.tokens for run, _ in places],
        [run.leaves - 0.12 for run, _ in places],
        [run.start for run, _ in places],
        label=label,
        **look,
    )


def _marks(ax: Axes, places: Sequence[Place]) -> None:
    """Checkpoints at their positions, on the lanes of what they stand on."""
    if places:
        across = [run.parent.leaves if run.parent is not None else 1 for run, _ in places]
        ax.plot(
            [run.end for run, _ in places],
            [lane + wide / 2 for (_, lane), wide in zip(places, across, strict=True)],
            "D",
            color=_ink(),
            markersize=5,
            label="checkpoint",
        )


def _ink() -> str:
    from matplotlib import rcParams

    return str(rcParams["text.color"])
