"""The prefix cache's frame as trees: blocks that follow one another alone are one run.

A run is what a picture shows as one piece. Its numbers are sums or common values of the frame's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

CHECKPOINTS = ("state", "window")
PREVIEW = 160
"""Characters of a run's text."""


@dataclass(slots=True, eq=False)
class Run:
    """Rows of the same kind, tier and hits, each the only one that follows the one before.

    A pinned row ends a run: all before it is kept for it.

    Attributes
    ----------
    rows
        Those of the frame, in order of position; None where a value is missing.
    parent, children
        The run that it follows, and those that follow it, checkpoints included.
    depth
        Runs before it.
    leaves
        Ends of chains that go through it, itself included: how many share it.
    """

    rows: list[Row]
    parent: Run | None = None
    children: list[Run] = field(default_factory=list)
    depth: int = 0
    leaves: int = 1

    @property
    def blocks(self) -> list[str]:
        """Their ids."""
        return [row["block_id"] for row in self.rows]

    @property
    def kind(self) -> str:
        """As in the frame: hot, kv, state or window."""
        return str(self.rows[0]["kind"])

    @property
    def tier(self) -> str:
        """As in the frame: memory or disk."""
        return str(self.rows[0]["tier"])

    @property
    def model(self) -> str:
        """Whose KV it is."""
        return str(self.rows[0]["model"])

    @property
    def owner(self) -> str:
        """The session that continues it, of a hot cache; empty where the frame is not wide."""
        return self.rows[0].get("owner") or ""

    @property
    def hits(self) -> int:
        """How often each row was reused."""
        return int(self.rows[0]["hits"])

    @property
    def pinned(self) -> bool:
        """Whether its last row is pinned, and with it all before."""
        return bool(self.rows[-1]["pinned"])

    @property
    def refs(self) -> int:
        """Turns that rely on the row that most rely on."""
        return int(max(row["refs"] for row in self.rows))

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return int(sum(row["tokens"] for row in self.rows))

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return int(sum(row["bytes"] for row in self.rows))

    @property
    def evict_order(self) -> int | None:
        """That of the row that goes first; None: none can go now, or the frame is not wide."""
        orders = (row.get("evict_order") for row in self.rows)
        return min((order for order in orders if order is not None), default=None)

    @property
    def preview(self) -> str:
        """The beginning of its text, as far as the frame has it."""
        text = ""
        for row in self.rows:
            text += row["preview"] or ""
            if len(text) >= PREVIEW:
                break
        return text[:PREVIEW]

    @property
    def start(self) -> int:
        """The position of its first token."""
        return int(self.rows[0]["start"])

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + self.tokens

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is a state at one position, and no KV that others share."""
        return self.kind in CHECKPOINTS

    def walk(self) -> Iterator[Run]:
        """It and all behind it, depth first."""
        waiting = [self]
        while waiting:
            run = waiting.pop()
            yield run
            waiting.extend(reversed(run.children))


def forest(df: pd.DataFrame) -> list[Run]:
    """The runs that follow no other, in the frame's order.

    Parameters
    ----------
    df
        As ``engine.prefix_cache()`` gives it, wide or not.
    """
    filled = df.astype(object).where(df.notna(), None)
    rows = [dict(zip(df.columns, row, strict=True)) for row in filled.itertuples(index=False)]
    known = {row["block_id"] for row in rows}
    behind: dict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        behind[row["parent_id"] if row["parent_id"] in known else None].append(row)
    roots = [Run([row]) for row in behind[None]]
    waiting = list(roots)
    while waiting:
        run = waiting.pop()
        _fill(run, behind)
        waiting.extend(run.children)
    for root in roots:
        _count(root)
    return roots


def _fill(run: Run, behind: Mapping[str | None, list[Row]]) -> None:
    """Append what follows as long as it is one block alike; the rest are its children."""
    end = run.end
    while True:
        last = run.rows[-1]
        after = behind.get(last["block_id"], [])
        blocks = [row for row in after if row["kind"] not in CHECKPOINTS]
        goes_on = len(blocks) == 1 and not run.is_checkpoint and _alike(last, blocks[0], end)
        others = [row for row in after if not (goes_on and row is blocks[0])]
        run.children += [Run([row], run, depth=run.depth + 1) for row in others]
        if not goes_on:
            return
        run.rows.append(blocks[0])
        end += blocks[0]["tokens"]


def _alike(last: Row, row: Row, end: int) -> bool:
    same = all(last[name] == row[name] for name in ("kind", "tier", "hits"))
    return same and not last["pinned"] and row["start"] == end


def _count(root: Run) -> None:
    """Set how many chains end at or behind each run."""
    for run in reversed(list(root.walk())):
        behind = [child for child in run.children if not child.is_checkpoint]
        run.leaves = sum(child.leaves for child in behind) or 1
