"""How often a growing answer is shown again."""

from __future__ import annotations

import time
from collections.abc import Callable

RATE = 20
"""Showings a second, at most."""
SHARE = 0.1
"""Part of the time that showing may take: the engine's thread wants the interpreter too."""
BYTES_PER_S = 250_000
"""Far under the 1 MB/s at which a notebook server drops a kernel's output."""


class Pace:
    """Tells when the next showing is due. The first one always is."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = float("-inf")

    @property
    def due(self) -> bool:
        """Whether something may be shown now."""
        return self._clock() >= self._next

    def show(self, action: Callable[[], int]) -> None:
        """Do it; ``action`` returns how many characters went out."""
        begin = self._clock()
        size = action()
        end = self._clock()
        self._next = max(begin + 1 / RATE, end + (end - begin) / SHARE, begin + size / BYTES_PER_S)
