"""What an inspector shows of a turn, as JSON values. Every number is from the engine's frames."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mlxnb.errors import UnknownSession, UnknownTurn
from mlxnb.notebook.loaded import loaded_models
from mlxnb.notebook.widgets.strip import strip
from mlxnb.records.forest import Run, forest
from mlxnb.records.turn import Turn

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.sessions.engine import Engine

State = dict[str, Any]

TURNS = 50
"""Turns to choose from: the last ones."""
RUNS = 500
"""Pieces of the prefix cache that are shown."""
TIERS = ("memory", "disk")
PIECE = (
    *("depth", "leaves", "kind", "tier", "model", "owner", "start", "end", "tokens", "bytes"),
    *("hits", "refs", "pinned", "evict_order", "preview"),
)
"""What is told of each."""


def inspect_turn(engine: Engine, turn: Turn | str | None, show_text: bool | None) -> State:
    """A turn's tokens and time, and the prefix cache as it is now.

    Parameters
    ----------
    turn
        None: the last one, where there is one.
    show_text
        As for ``engine.explain``.

    Raises
    ------
    UnknownTurn
        No such turn is kept.
    """
    turns = engine.turns()
    state: State = {"turns": _choices(turns), **_cache(engine, show_text)}
    if turn is None and not len(turns):
        return state | _nothing("")
    explained = engine.explain(turn, show_text)
    name = explained.turn_id
    state |= _nothing(name) | {"facts": [list(fact) for fact in explained.facts]}
    state["timeline"] = _phases(engine.timeline(name))
    try:
        state["strip"] = strip(engine.tokens(name, show_text))
    except UnknownTurn as error:
        return state | {"said": str(error)}
    if state["strip"]["texts"] is not None and explained.model not in loaded_models(engine):
        state["said"] = f"{explained.model} is not loaded: ids stand for the texts of its tokens"
    if state["strip"]["texts"] is not None:
        held = turn if isinstance(turn, Turn) else _held(engine, turns, name)
        state["alternatives"] = _alternatives(held)
    return state


def _nothing(turn: str) -> State:
    """What is shown where nothing is known."""
    said = "" if turn else "no turns yet"
    rest: State = {"facts": [], "strip": None, "timeline": [], "alternatives": {}}
    return {"turn": turn, "said": said, **rest}


def _choices(turns: pd.DataFrame) -> list[list[str]]:
    """Ids and names of the last turns, the newest first."""
    last = turns.tail(TURNS).iloc[::-1]
    columns = ("turn_id", "session", "cached_tokens", "prompt_tokens")
    return [
        [str(name), f"{name} · {session} · {cached:,} of {prompt:,} reused"]
        for name, session, cached, prompt in zip(
            *(last[column].fillna("–" if column == "session" else 0) for column in columns),
            strict=True,
        )
    ]


def _phases(timeline: pd.DataFrame) -> list[list[Any]]:
    """``[phase, start_s, end_s, tokens]``."""
    columns = ("phase", "start_s", "end_s", "tokens")
    values = (timeline[column].fillna(0).tolist() for column in columns)
    return [list(row) for row in zip(*values, strict=True)]


# --- the prefix cache -------------------------------------------------------------------------


def _cache(engine: Engine, show_text: bool | None) -> State:
    """Its pieces, each before those behind it, and how many there are in all."""
    frame = engine.prefix_cache(show_text, wide=True)
    runs = [run for root in forest(frame) for run in root.walk()]
    tiers = {tier: int(frame["bytes"][frame["tier"] == tier].sum()) for tier in TIERS}
    return {
        "tree": [_piece(run) for run in runs[:RUNS]],
        "cache": {"pieces": len(runs), "rows": len(frame), **tiers},
    }


def _piece(run: Run) -> State:
    return {name: getattr(run, name) for name in PIECE} | {
        "first": run.blocks[0],
        "last": run.blocks[-1],
        "rows": len(run.rows),
    }


# --- alternatives -----------------------------------------------------------------------------


def _held(engine: Engine, turns: pd.DataFrame, name: str) -> Turn | None:
    """The turn itself, where its session still has it."""
    session = turns["session"][turns["turn_id"] == name].dropna().tolist()
    try:
        last = engine.find_session(session[0]).last if session else None
    except UnknownSession:
        return None
    return last if last is not None and last.id == name else None


def _alternatives(turn: Turn | None) -> dict[str, list[list[Any]]]:
    """By places of the answer: ``[token, logprob, rank, taken]``, the likeliest first.

    ``logprob`` is None where it is not finite: a token that its form forbids.
    """
    frame = turn.logprobs if turn is not None else None
    found: dict[str, list[list[Any]]] = {}
    for position, token, logprob, rank, taken in _rows(frame) if frame is not None else ():
        finite = logprob if math.isfinite(logprob) else None
        found.setdefault(str(position), []).append([token, finite, rank, taken])
    return found


def _rows(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    ordered = frame.sort_values(["position", "rank"])
    columns = ("position", "token", "logprob", "rank", "taken")
    return zip(*(ordered[column].tolist() for column in columns), strict=True)
