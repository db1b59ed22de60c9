"""A host with a process of its own: an engine, a service and a server, and when to end."""

from __future__ import annotations

import logging
import os
import signal
import threading

from mlxnb.engine.disk import open_disk
from mlxnb.errors import MlxnbError
from mlxnb.host import faults
from mlxnb.host.config import Config
from mlxnb.host.parent import Parent
from mlxnb.host.server import DRAIN_S, Server
from mlxnb.link.record import HostRecord
from mlxnb.models.source import ModelSource
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.service import Service

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Seconds between two looks at whether the parent lives."""


class Headless:
    """Serves until it is told to end, or the process that it is for is gone.

    Parameters
    ----------
    parent
        None: it is for nobody, and is ended by hand.

    Raises
    ------
    MlxnbError
        The model cannot be found, or the user's directories cannot be used.
    """

    def __init__(self, config: Config, parent: Parent | None = None) -> None:
        self._parent, self._ending = parent, threading.Event()
        self._source = config.source()
        record = HostRecord.here("headless", title=config.title)
        self.engine = LocalEngine(
            config.budget,
            host=f"host-{os.getpid()}",
            idle_after=config.idle_clear_s,
            disk=open_disk(config.disk),
        )
        self.service = Service(
            self.engine,
            catalog=config.catalog(self._source),
            store=config.open_store(),
            host=record.id,
            limits=config.service_limits,
        )
        self.server = Server(self.service, record, port=config.port, limits=config.limits)

    def start(self) -> None:
        """Take requests, and read the model that was asked for.

        Raises
        ------
        InvalidOption
            The port is taken.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._ending.set())
        self.server.start()
        if self._source is not None:
            loading = threading.Thread(target=self._load, args=(self._source,), daemon=True)
            loading.start()

    def wait(self) -> None:
        """Wait for the end."""
        while not self._ending.wait(LOOK_S):
            if self._parent is not None and not self._parent.is_alive():
                log.info("the process that this host is for has ended")
                return

    def stop(self, drain_s: float = DRAIN_S) -> None:
        """Let running answers end, and give all up."""
        self.server.stop(drain_s)
        self.service.close()
        self.engine.close()

    def _load(self, source: ModelSource) -> None:
        try:
            self.engine.load_source(source, progress=False)
        except MlxnbError as error:
            faults.report("loading failed", error, model=source.name, request_id="none")
