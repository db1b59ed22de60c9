"""What a host counts, as Prometheus reads it. No name of a user is in it (W65)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from mlxnb.engine.events import Event, Piece
from mlxnb.host.collector import ServiceCollector
from mlxnb.host.traffic import Traffic
from mlxnb.records.turn import Turn
from mlxnb.sessions.serving.service import Service

TTFT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
GAP_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 5.0)


class Meters:
    """Counters and histograms of one host, over all of its sockets."""

    def __init__(self, service: Service, traffic: Traffic) -> None:
        registry = self._registry = CollectorRegistry()
        labels = ("route", "model")
        self.requests = Counter(
            "mlxnb_requests",
            "Requests by how they ended: completed, a kind of failure, a status before that.",
            (*labels, "outcome"),
            registry=registry,
        )
        self.tokens = Counter(
            "mlxnb_tokens",
            "Tokens of answers that ended: prompt (cached ones included), cached, output.",
            (*labels, "kind"),
            registry=registry,
        )
        self.first_token = Histogram(
            "mlxnb_time_to_first_token_seconds",
            "From a request's arrival to its first token.",
            labels,
            buckets=TTFT_S,
            registry=registry,
        )
        self.gap = Histogram(
            "mlxnb_inter_token_seconds",
            "Between two pieces of an answer.",
            labels,
            buckets=GAP_S,
            registry=registry,
        )
        registry.register(ServiceCollector(service, traffic))

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)

    def refused(self, route: str, outcome: str) -> None:
        """Count a request that ended before it had an answer."""
        self.requests.labels(route, "", outcome).inc()


class Meter:
    """Counts one answer."""

    def __init__(self, meters: Meters, route: str, model: str) -> None:
        self._meters, self._labels = meters, (route, model)
        self._gap = meters.gap.labels(route, model)
        self._last: float | None = None

    def watch(self, events: Sequence[Event]) -> None:
        """Measure the time between pieces; those that come together count as one."""
        if not any(isinstance(event, Piece) for event in events):
            return
        now = time.perf_counter()
        if self._last is not None:
            self._gap.observe(now - self._last)
        self._last = now

    def ended(self, outcome: str, turn: Turn | None) -> None:
        """Count the answer, once."""
        self._meters.requests.labels(*self._labels, outcome).inc()
        if turn is None:
            return
        usage = turn.usage
        counts = (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens)
        for kind, count in zip(("prompt", "cached", "output"), counts, strict=True):
            self._meters.tokens.labels(*self._labels, kind).inc(count)
        if turn.timing.ttft_s is not None:
            self._meters.first_token.labels(*self._labels).observe(turn.timing.ttft_s)
