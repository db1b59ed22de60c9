"""One interrupt stops a turn; it never falls into the middle of showing or settling it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

GRACE_S = 10.0
"""Seconds of waiting for the engine after which a further interrupt is raised at once."""


def interrupted(why: str) -> KeyboardInterrupt:
    """What a cell ends with that the user has stopped: shown as one line, without its frames."""
    error = KeyboardInterrupt(why)
    error._render_traceback_ = lambda: [f"KeyboardInterrupt: {why}"]  # type: ignore[attr-defined]
    return error


class Interrupts:
    """While it is entered, SIGINT calls ``stop`` instead of raising.

    A second one, while the engine comes to its end, does nothing. Outside the main thread, which
    signals never reach, it does nothing at all.

    Attributes
    ----------
    came
        There was an interrupt.
    """

    def __init__(self) -> None:
        self.came = False
        self._at = 0.0
        self._stop: Callable[[], None] | None = None
        self._old: Any = None
        self._main = threading.current_thread() is threading.main_thread()

    def then(self, stop: Callable[[], None]) -> None:
        """Set what an interrupt does; done at once if one has come already."""
        self._stop = stop
        if self.came:
            stop()

    def __enter__(self) -> Interrupts:
        if self._main:
            self._old = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._old)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.came:
            if now - self._at > GRACE_S:
                raise KeyboardInterrupt
            return
        self.came, self._at = True, now
        if self._stop is not None:
            self._stop()
