"""Measured quantities: samples with their unit, who they are of, and what they cost at least."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

OURS = "mlxnb"
"""Who a figure is of, where it is not of another library."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one unit of work takes at the least: bytes read from memory, float32 operations.

    A multiplication and an addition count as two operations.
    """

    nbytes: float
    operations: float

    def seconds(self, bandwidth: float, peak: float) -> float:
        """The roofline's time: whichever of the two takes longer.

        Parameters
        ----------
        bandwidth
            Bytes a second.
        peak
            Operations a second.
        """
        return max(self.nbytes / bandwidth, self.operations / peak)


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity, measured once or more.

    Attributes
    ----------
    part
        The part of the bench that it belongs to.
    what
        What was measured, sizes included.
    unit
        ``tokens/s``, ``s``, ``ms``, ``steps``, ``bytes``, ``tokens``, ``ratio`` and their like.
    samples
        One value a round; empty where it was not run, and ``note`` says why.
    who
        `OURS`, ``mlx-lm`` or ``llama-cpp``.
    cost
        Of one token, for rates; it gives the bound.
    """

    part: str
    what: str
    unit: str
    samples: tuple[float, ...]
    who: str = OURS
    cost: Cost | None = None
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from all others: a later measurement of the same replaces it."""
        return self.part, self.what, self.unit, self.who

    @property
    def median(self) -> float | None:
        """The middle sample; None where it was not run."""
        return statistics.median(self.samples) if self.samples else None

    @property
    def low(self) -> float | None:
        """The least sample."""
        return min(self.samples, default=None)

    @property
    def high(self) -> float | None:
        """The greatest sample."""
        return max(self.samples, default=None)

    def bound(self, bandwidth: float, peak: float) -> float | None:
        """Tokens a second that the roofline allows; None for what is no rate."""
        return None if self.cost is None else 1 / self.cost.seconds(bandwidth, peak)


class Sheet:
    """Collects the samples of one part, round by round, in order of first mention."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._samples: dict[tuple[str, str, str], list[float]] = {}
        self._costs: dict[tuple[str, str, str], Cost | None] = {}
        self._notes: dict[tuple[str, str, str], str] = {}

    def add(
        self, what: str, unit: str, value: float, who: str = OURS, cost: Cost | None = None
    ) -> None:
        """One more sample."""
        self._samples.setdefault((what, unit, who), []).append(value)
        self._costs[what, unit, who] = cost

    def leave_out(self, what: str, unit: str, who: str, why: str) -> None:
        """A figure that is not run, and why."""
        self._samples.setdefault((what, unit, who), [])
        self._notes[what, unit, who] = why

    def figures(self) -> list[Figure]:
        """All of them."""
        return [
            Figure(
                self._part,
                *(what, unit, tuple(samples), who),
                cost=self._costs.get((what, unit, who)),
                note=self._notes.get((what, unit, who), ""),
            )
            for (what, unit, who), samples in self._samples.items()
        ]


def find(figures: Iterable[Figure], what: str, who: str = OURS) -> Figure | None:
    """The figure of that name."""
    return next((f for f in figures if f.what == what and f.who == who), None)
