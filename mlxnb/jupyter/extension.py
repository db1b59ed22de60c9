"""The extension: its configuration, its routes, and what lives as long as the notebook server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import url_path_join
from tornado.web import RequestHandler

from mlxnb.jupyter.activity import touch
from mlxnb.jupyter.answer import BASE
from mlxnb.jupyter.hosts import Hosts
from mlxnb.jupyter.route import Route
from mlxnb.jupyter.settings import MlxNb
from mlxnb.jupyter.shared import Shared
from mlxnb.jupyter.supervisor import Supervisor
from mlxnb.link.record import HostRecord, publish, withdraw

PART_S = 2.0
"""Seconds that answers have to end in when the server stops."""


class Extension(ExtensionApp):
    """OpenAI's and Anthropic's routes on the notebook port, under ``<base_url>mlxnb/``."""

    name = "mlxnb"
    description = "Local language models for HTTP clients, on the notebook port."
    classes = [*ExtensionApp.classes, MlxNb]  # noqa: RUF012 - as traitlets declares it

    chosen: MlxNb
    hosts: Hosts
    record: HostRecord | None = None

    # --- its life ------------------------------------------------------------------------------

    def initialize_handlers(self) -> None:
        """Take all paths under ``{base}``."""
        self._passing: set[Route] = set()
        chosen = self.chosen = MlxNb(parent=self)
        supervisor = Supervisor(chosen.host_python, chosen.host_config, self.log)
        self.hosts = Hosts(supervisor if chosen.start_host else None, chosen.aliases)
        self.handlers.append((rf"/{BASE}/shared", Shared, {"extension": self}))
        self.handlers.append((rf"/{BASE}(?:/.*)?", Route, {"extension": self}))

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Let kernels know that the routes are there."""
        url = url_path_join(serverapp.connection_url, BASE)
        self.record = replace(HostRecord.here("notebook", url=url), aliases=self.chosen.aliases)
        publish(self.record)

    async def stop_extension(self) -> None:
        """End what was started."""
        if self.record is not None:
            withdraw(self.record)
        for handler in list(self._passing):
            handler.part()
        end = time.monotonic() + PART_S
        while self._passing and time.monotonic() < end:
            await asyncio.sleep(0.01)
        await self.hosts.close()

    # --- activity ------------------------------------------------------------------------------

    @contextmanager
    def passing(self, handler: Route) -> Iterator[None]:
        """Count a request while it is answered."""
        self._passing.add(handler)
        try:
            yield
        finally:
            self._passing.discard(handler)

    def current_activity(self) -> list[RequestHandler] | None:
        """Requests in flight: a server that is idle otherwise does not stop under them."""
        return [*self._passing] or None

    def touch(self, host: HostRecord) -> None:
        """Count what a host sends as activity of its kernel and of the server (W61)."""
        assert self.serverapp is not None, "an extension that answers is linked"
        touch(self.serverapp.web_app.settings, host)
