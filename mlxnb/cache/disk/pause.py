"""Writing, turned off for a while after a fault."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from mlxnb.errors import MlxnbError

log = logging.getLogger(__name__)


class Pause:
    """Whether a tier writes. It tries again after a while; the log hears of a fault once.

    Parameters
    ----------
    folder
        The tier's folder, for the log.
    length_s
        Seconds that nothing is written after a fault.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self, folder: Path, length_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._length_s, self._clock = folder, length_s, clock
        self._until = clock()
        self._reason: str | None = None

    @property
    def active(self) -> bool:
        """Nothing is written at present."""
        return self._clock() < self._until

    @property
    def state(self) -> str:
        """``ok``, or ``off:`` and the reason, until something has been written again."""
        return "ok" if self._reason is None else f"off: {self._reason}"

    def begin(self, error: Exception) -> None:
        """Something could not be written."""
        self._until = self._clock() + self._length_s
        reason = _reason(error)
        if reason != self._reason:
            self._reason = reason
            told = "the disk cache %s is off, and tried again every %.0f s: %s"
            log.warning(told, self._folder, self._length_s, reason)

    def end(self) -> None:
        """Something has been written."""
        self._reason = None


def _reason(error: Exception) -> str:
    """What went wrong, and nothing of what was to be written."""
    if isinstance(error, MlxnbError | SafetensorError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
