"""Frames as an engine makes them, by hand: each number is chosen."""

from __future__ import annotations

import datetime as dt
import math
from array import array
from typing import TYPE_CHECKING, Any

from mlxnb.records.alternative import Alternative, alternatives_frame
from mlxnb.records.block_row import BlockRow
from mlxnb.records.frames import prefix_frame, turns_frame
from mlxnb.records.phase_row import PhaseRow, timeline_frame
from mlxnb.records.turn import Timing, TurnRecord, Usage

if TYPE_CHECKING:
    import pandas as pd

NOON = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)


def turn(number: int, prompt: int, cached: int = 0, **facts: Any) -> TurnRecord:
    timing = Timing(0.01 * number, 0.2, 0.1, False, 0.05, 0.3, 0.4 * number, 0.5, 1.0)
    return TurnRecord(
        f"t{number}",
        "anna",
        "demo",
        "magic",
        "kernel",
        NOON,
        usage=Usage(prompt, cached, 8),
        timing=timing,
        prompt=array("I", range(prompt)),
        **facts,
    )


def turns(*records: TurnRecord, wide: bool = True) -> pd.DataFrame:
    return turns_frame(records, wide=wide)


def block(name: str, parent: str | None, start: int, **facts: Any) -> BlockRow:
    """A block of 16 tokens and 1,000 bytes, in memory."""
    values: dict[str, Any] = {
        "model": "demo",
        "kind": "kv",
        "tokens": 16,
        "refs": 0,
        "hits": 1,
        "bytes": 1_000,
        "tier": "memory",
        "last_used": NOON,
        "pinned": False,
        "preview": f"<{name}>",
    }
    return BlockRow(block_id=name, parent_id=parent, start=start, **(values | facts))


def chain(name: str, parent: str | None, start: int, count: int, **facts: Any) -> list[BlockRow]:
    made = []
    for number in range(count):
        made.append(block(f"{name}{number}", parent, start + 16 * number, **facts))
        parent = made[-1].block_id
    return made


def cache() -> list[BlockRow]:
    """A hot cache; a chain of 3 blocks that parts in two, one of them on disk; a checkpoint."""
    return [
        block("h1", None, 0, kind="hot", tokens=70, owner="anna", evict_order=3),
        *chain("a", None, 0, 3, hits=4),
        *chain("b", "a2", 48, 2, hits=0),
        block("b2", "b1", 80, hits=0, evict_order=1),
        *chain("d", "a2", 48, 4, hits=0, tier="disk"),
        block("c1", "a2", 48, kind="state", tokens=0, bytes=300, evict_order=2),
    ]


def prefix(*rows: BlockRow, wide: bool = True) -> pd.DataFrame:
    return prefix_frame(rows, wide)


def timeline(*rows: PhaseRow) -> pd.DataFrame:
    return timeline_frame(rows)


def logprobs(*places: list[tuple[str, float]]) -> pd.DataFrame:
    """Tokens and their probabilities, the taken one first."""
    return alternatives_frame(
        [Alternative(at, math.log(p), at, at == 0, text) for at, (text, p) in enumerate(place)]
        for place in places
    )
