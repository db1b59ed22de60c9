"""What a service says of itself by name, as families of Prometheus, when it is scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mlxnb.host.traffic import Traffic
from mlxnb.sessions.serving.service import Service

GROWING = ("model_loads", "failed_model_loads", "model_load_seconds", "engine_restarts")
"""Of the service's numbers those that only grow."""


class ServiceCollector(Collector):
    """Asks a service and its traffic."""

    def __init__(self, service: Service, traffic: Traffic) -> None:
        self._service, self._traffic = service, traffic

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        now = self._service.counters() | {"in_flight_requests": self._traffic.in_flight}
        for name, value in now.items():
            family = CounterMetricFamily if name in GROWING else GaugeMetricFamily
            yield family(f"mlxnb_{name}", name.replace("_", " "), value)
