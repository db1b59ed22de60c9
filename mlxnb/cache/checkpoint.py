"""A checkpoint: what layers that cannot be rewound need to go on from one exact position.

Running states are copied whole. Of sliding windows the last tokens are kept, as stretches that
neighbouring checkpoints share.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mlxnb import mlxlm
from mlxnb.cache.index import Block

if TYPE_CHECKING:
    from mlxnb.cache.live import Live

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Keys and values that windows have of tokens ``[start, end)``, or of the last of these."""

    start: int
    end: int
    tail: mlxlm.Tail

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(part.nbytes for part in self.tail)


@dataclass(slots=True, eq=False)
class Checkpoint:
    """States and windows after ``position`` tokens of a sequence of model ``space``.

    It belongs to a live cache (``live``) until it is filed in the index: then under ``node``,
    behind the tokens ``key``. ``refs`` counts plans that rely on it.
    """

    space: str
    position: int
    states: mlxlm.States
    stretches: tuple[Stretch, ...]
    live: Live | None = None
    node: Block | None = None
    key: bytes = b""
    refs: int = 0
    hits: int = 0
    pinned: bool = False
    stamp: int = 0
    last_used: float = 0.0
    dropped: bool = False
    id: str = field(default_factory=lambda: f"c{next(_numbers)}")

    @property
    def kind(self) -> Literal["window", "state"]:
        """What it holds, as its row calls it: a state, if there is one."""
        return "state" if self.states.forms else "window"

    @property
    def start(self) -> int:
        """The first position whose keys it has; without windows its own."""
        return self.stretches[0].start if self.stretches else self.position

    @property
    def used(self) -> bool:
        """Whether somebody relies on it."""
        return bool(self.refs or self.pinned or (self.live is not None and self.live.plans))

    def restore(self, caches: mlxlm.Caches) -> None:
        """Give states and windows to caches that have none yet."""
        mlxlm.thaw(caches, self.states)
        if self.stretches:
            mlxlm.put_tail(caches, [stretch.tail for stretch in self.stretches], self.position)


def take(
    space: str, caches: mlxlm.Caches, position: int, before: Sequence[Stretch], reach: int
) -> Checkpoint:
    """A checkpoint of caches that hold ``position`` tokens.

    Parameters
    ----------
    before
        The stretches of an earlier checkpoint of the same sequence.
    reach
        How many of the last tokens the longest window needs.
    """
    return Checkpoint(
        space,
        position,
        mlxlm.freeze(caches),
        _stretches(caches, position, before, reach) if reach else (),
    )


def _stretches(
    caches: mlxlm.Caches, position: int, before: Sequence[Stretch], reach: int
) -> tuple[Stretch, ...]:
    needed = max(0, position - reach)
    known = [stretch for stretch in before if stretch.end > needed]
    start = known[-1].end if known else needed
    if start < position:
        known.append(Stretch(start, position, mlxlm.tail(caches, position - start)))
    return tuple(known)
