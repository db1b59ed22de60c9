"""When the pieces of an answer came."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds until the first piece, and between two after it; ``pieces`` of them came."""

    first_s: float
    gap_s: float
    pieces: int


def paced(pieces: Iterable[object], begin: float) -> Pace:
    """Take an answer's pieces as they come.

    Parameters
    ----------
    begin
        When it was asked for, on ``time.perf_counter``'s scale.
    """
    stamps = [time.perf_counter() for _ in pieces]
    assert len(stamps) > 1, "an answer that is measured has some pieces"
    return Pace(stamps[0] - begin, (stamps[-1] - stamps[0]) / (len(stamps) - 1), len(stamps))
