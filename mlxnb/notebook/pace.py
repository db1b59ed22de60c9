"""How often a growing answer is shown again."""

from __future__ import annotations

import time
from collections.abc import Callable

PERIOD_S = 1 / 20
"""Between two showings, at the least."""
SHARE = 0.1
"""Part of the time that showing may take: the engine's thread wants the interpreter too."""
BYTES_PER_S = 250_000
"""Far under the 1 MB/s at which a notebook server drops a kernel's output."""
LONGEST_S = 1.0
"""Between two showings, whatever they cost."""


class Pace:
    """Tells when the next showing is due. The first one always is."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._earliest = self._next = float("-inf")

    @property
    def due(self) -> bool:
        """Whether something that can wait may be shown now."""
        return self._clock() >= self._next

    def show(self, action: Callable[[], int]) -> None:
        """Do it when a period has passed; ``action`` returns how many characters went out."""
        self._sleep(max(0.0, self._earliest - self._clock()))
        begin = self._clock()
        size = action()
        end = self._clock()
        self._earliest = begin + PERIOD_S
        costly = max(end + (end - begin) / SHARE, begin + size / BYTES_PER_S)
        self._next = max(self._earliest, min(costly, end + LONGEST_S))
