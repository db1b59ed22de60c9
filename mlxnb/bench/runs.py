"""One prompt and its answer, as whoever is measured ran them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds until the first token, and for the ``decoded`` ones after it."""

    first_s: float
    decode_s: float
    decoded: int

    @property
    def decode_tps(self) -> float:
        """Tokens a second after the first."""
        return self.decoded / self.decode_s


def timed(tokens: Iterator[object], begin: float, decoded: int) -> Run:
    """Take one token and ``decoded`` more.

    Parameters
    ----------
    begin
        When the prompt was given, on ``time.perf_counter``'s scale.
    """
    next(tokens)
    first = time.perf_counter()
    for _ in range(decoded):
        next(tokens)
    return Run(first - begin, time.perf_counter() - first, decoded)
