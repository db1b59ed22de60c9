"""What a service has done, as numbers for its metrics."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mlxnb.records.turn import TurnRecord
from mlxnb.sessions.failure import kind_of

FIRST_TOKEN_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
BETWEEN_TOKENS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


@dataclass(slots=True)
class Histogram:
    """``counts[i]`` observations are at most ``bounds[i]``; the last count is of all above."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """Observations."""
        return sum(self.counts)


class Meters:
    """Counters and histograms; no label of theirs is a user's. Any thread may write.

    Attributes
    ----------
    requests
        By model, source and outcome: a finish reason, or the kind of a failure.
    tokens
        By model and kind: prompt, cached, output.
    first_token, between_tokens
        Seconds by model. Between tokens it is each answer's mean, counted for each token.
    loads
        By model, and whether it went well.
    in_flight
        Requests that have begun and not ended.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.tokens: Counter[tuple[str, str]] = Counter()
        self.first_token: dict[str, Histogram] = {}
        self.between_tokens: dict[str, Histogram] = {}
        self.loads: Counter[tuple[str, bool]] = Counter()
        self.load_seconds: dict[str, float] = {}
        self.in_flight: Counter[str] = Counter()
        self._active: dict[str, float] = {}

    def began(self, model: str) -> None:
        """A request has begun."""
        with self.lock:
            self.in_flight[model] += 1
            self._active[model] = time.monotonic()

    def ended(self, record: TurnRecord, error: Exception | None) -> None:
        """A request has ended; its row is complete."""
        outcome = kind_of(record.finish_reason, error) or str(record.finish_reason)
        with self.lock:
            self.in_flight[record.model] -= 1
            self._active[record.model] = time.monotonic()
            self.requests[record.model, record.source, outcome] += 1
            self._count(record)

    def _count(self, record: TurnRecord) -> None:
        usage, timing, model = record.usage, record.timing, record.model
        self.tokens[model, "prompt"] += usage.prompt_tokens
        self.tokens[model, "cached"] += usage.cached_tokens
        self.tokens[model, "output"] += usage.output_tokens
        if timing.ttft_s is not None:
            first = self.first_token.setdefault(model, Histogram(FIRST_TOKEN_S))
            first.observe(timing.ttft_s)
        if usage.output_tokens > 1:
            between = self.between_tokens.setdefault(model, Histogram(BETWEEN_TOKENS_S))
            steps = usage.output_tokens - 1
            between.observe(timing.decode_s / steps, steps)

    def loaded(self, model: str, seconds: float, well: bool) -> None:
        """A load has ended."""
        with self.lock:
            self.loads[model, well] += 1
            self.load_seconds[model] = self.load_seconds.get(model, 0.0) + seconds
            self._active[model] = time.monotonic()

    def idle_s(self, model: str) -> float | None:
        """Seconds since the model was loaded or last used; None while a request is in flight."""
        with self.lock:
            if self.in_flight[model] > 0:
                return None
            return time.monotonic() - self._active.setdefault(model, time.monotonic())
