"""When each model was last used, and what loading has cost."""

from __future__ import annotations

import threading
import time
from collections import Counter


class Activity:
    """Counts inference, which alone is activity, and loads. Any thread may write.

    Attributes
    ----------
    in_flight
        Requests that have begun and not ended, by model.
    loads, failed_loads, load_seconds
        Of all models.
    """

    def __init__(self) -> None:
        self.in_flight: Counter[str] = Counter()
        self.loads = 0
        self.failed_loads = 0
        self.load_seconds = 0.0
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}

    def began(self, model: str) -> None:
        """A request has begun."""
        with self._lock:
            self.in_flight[model] += 1

    def ended(self, model: str) -> None:
        """It has ended, well or not; called once for each that has begun."""
        with self._lock:
            self.in_flight[model] -= 1
            self._last[model] = time.monotonic()

    def loaded(self, model: str, seconds: float, well: bool) -> None:
        """A load has ended."""
        with self._lock:
            self.loads += well
            self.failed_loads += not well
            self.load_seconds += seconds
            self._last[model] = time.monotonic()

    def idle_s(self, model: str) -> float | None:
        """Seconds since a model was loaded or last used; None while a request is in flight."""
        with self._lock:
            now = time.monotonic()
            last = self._last.setdefault(model, now)
            return None if self.in_flight[model] > 0 else now - last
