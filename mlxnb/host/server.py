"""A host's sockets, on a thread with an event loop of its own: it answers while a cell runs."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from tornado.httpserver import HTTPServer

from mlxnb.host.app import application
from mlxnb.host.context import Context, Limits
from mlxnb.host.door import Door
from mlxnb.host.doors import DOORS
from mlxnb.host.gate import PortGate, SocketGate
from mlxnb.host.listen import ADDRESS, on_port, on_socket
from mlxnb.host.meters import Meters
from mlxnb.host.status import no_status, status_frame
from mlxnb.host.traffic import Traffic
from mlxnb.link.record import HostRecord, publish, withdraw

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.sessions.serving.service import Service

DRAIN_S = 30.0
"""Seconds that running answers have to end when a host stops."""
THREADS = 32
"""Requests that render, count or wait for the store at the same time."""
LOOK_S = 1.0
"""Seconds between two looks at which models are loaded, for the record."""


class Server:
    """Serves one service until it is stopped.

    Parameters
    ----------
    doors
        The protocols that it speaks.
    record
        Published while it serves, with what is loaded and, with a port, its URL.
    port
        A loopback port to listen on beside the Unix socket; 0: any; None: none.

    Attributes
    ----------
    token
        What this process's own clients may use on the port in place of a key. It is nowhere
        written.
    """

    def __init__(
        self,
        service: Service,
        record: HostRecord,
        *,
        doors: Sequence[Door] = DOORS,
        port: int | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self.record = record
        self.token = token_urlsafe(32)
        self._service, self._doors = service, doors
        self._port, self._limits = port, limits
        self._thread = threading.Thread(target=self._main, name="mlxnb-host", daemon=True)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._drain_s = DRAIN_S
        self._traffic: Traffic | None = None

    # --- any thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve; returns when requests are taken.

        Raises
        ------
        InvalidOption
            The port is taken.
        NotPrivate, StateUnwritable
            The directory of the socket or of the records cannot be used.
        """
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        atexit.register(self.stop, 0.0)

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Take no more requests, wait for those that run, and end; harmless when it has ended.

        Parameters
        ----------
        drain_s
            Seconds after which running answers are stopped.
        """
        atexit.unregister(self.stop)
        self._drain_s = drain_s
        if self.serving:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    @property
    def serving(self) -> bool:
        """Whether it takes requests."""
        return self._ready.is_set() and self._thread.is_alive()

    @property
    def in_flight(self) -> int:
        """Requests whose work has not ended."""
        return 0 if self._traffic is None else self._traffic.in_flight

    def status(self) -> pd.DataFrame:
        """One row: where it listens, what is loaded, requests so far, in flight and queued."""
        if self._traffic is None:
            return no_status()
        health = self._service.health()
        return status_frame(
            self.record,
            models=self.record.models,
            health=health.status,
            requests=self._traffic.requests,
            in_flight=self._traffic.in_flight,
            queued=health.waiting,
        )

    # --- its thread ---------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        traffic = self._traffic = Traffic()
        with ThreadPoolExecutor(THREADS, thread_name_prefix="mlxnb-host") as pool:
            meters = Meters(self._service, traffic)
            gate = SocketGate(self.record.secret)
            context = Context(self._service, gate, pool, traffic, meters, self._limits)
            servers = self._listen(context)
            try:
                publish(self.record)
                self._ready.set()
                await self._until_stopped()
            finally:
                withdraw(self.record)
                await _shut(servers, traffic, self._drain_s)

    def _listen(self, context: Context) -> list[HTTPServer]:
        path = self.record.socket
        assert path is not None, "a host has a socket"
        servers: list[HTTPServer] = []
        if self._port is not None:
            app = application(replace(context, gate=PortGate(self.token)), self._doors)
            server, port = on_port(app, self._port)
            servers.append(server)
            self.record = replace(self.record, url=f"http://{ADDRESS}:{port}")
        servers.append(on_socket(application(context, self._doors), Path(path)))
        return servers

    async def _until_stopped(self) -> None:
        """Wait for the end, and keep the record true meanwhile."""
        while not self._stopping.is_set():
            names = tuple(self._service.loaded())
            if names != self.record.models:
                self.record = self.record.with_models(names)
                publish(self.record)
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._stopping.wait()
            except TimeoutError:
                continue


async def _shut(servers: list[HTTPServer], traffic: Traffic, drain_s: float) -> None:
    for server in servers:
        server.stop()
    await traffic.drain(drain_s)
    for server in servers:
        await server.close_all_connections()
