"""The time for what cannot be undone: a wall clock that is set ahead does not bring it about."""

from __future__ import annotations

import time

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that nobody sets and that goes on while the machine sleeps: on Linux, on macOS."""


class Steady:
    """The wall clock's time, and no more of it than has passed since this was made.

    A clock that is set back is followed: what was to happen happens later.
    """

    def __init__(self) -> None:
        self._began = time.time()
        self._since = time.clock_gettime(_SINCE_BOOT)

    def now(self) -> float:
        """Seconds since 1970."""
        passed = time.clock_gettime(_SINCE_BOOT) - self._since
        return min(time.time(), self._began + passed)
