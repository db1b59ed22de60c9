"""Whether the host is well, and what it counts."""

from __future__ import annotations

from dataclasses import asdict

from prometheus_client import CONTENT_TYPE_LATEST

from mlxnb import __version__
from mlxnb.host.route import Route


class Health(Route):
    """``GET health``: the status alone for everybody, more for those who may come in (W4, W49)."""

    public = True

    async def get(self) -> None:
        """Ask the service."""
        health = await self.context.blocking(self.context.service.health)
        told = {"status": health.status}
        if self.identity is not None:
            told |= asdict(health)
        self.answer(told, 503 if health.status == "error" else 200)


class Metrics(Route):
    """``GET metrics``: Prometheus' text."""

    async def get(self) -> None:
        """Ask the meters; the gauges look at the cache, which others lock."""
        text = await self.context.blocking(self.context.meters.text)
        self.set_header("Content-Type", CONTENT_TYPE_LATEST)
        await self.finish(text)


class Base(Route):
    """``HEAD`` and ``GET`` of the base URLs: clients look whether anybody is there (W53)."""

    def head(self) -> None:
        """Nothing but the status."""

    def get(self) -> None:
        """What answers here."""
        self.answer({"object": "mlxnb", "version": __version__})


class Nothing(Route):
    """Every other path (W2)."""

    def prepare(self) -> None:
        """Refuse it to those who may come in, and all else to others."""
        super().prepare()
        self.send_error(404)
