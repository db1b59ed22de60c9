"""A host with a process of its own: an engine, a service and a server, and when to end."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import IO

from mlxnb.errors import MlxnbError
from mlxnb.host import faults
from mlxnb.host.config import Config
from mlxnb.host.server import DRAIN_S, Server
from mlxnb.link.record import HostRecord
from mlxnb.models.source import ModelSource
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.service import Service

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks at whether the parent lives."""


class Headless:
    """Serves until it is told to end, or the process that it is for is gone.

    Parameters
    ----------
    pipe
        What the parent holds the other end of; None: there is none.
    """

    def __init__(self, config: Config, pipe: IO[str] | None = None) -> None:
        self._config, self._pipe = config, pipe
        self._ending = threading.Event()
        source = config.source()
        record = HostRecord.here("headless", title=config.title)
        self.engine = LocalEngine(config.budget, host=f"host-{record.process.pid}")
        self.service = Service(
            self.engine,
            catalog=config.catalog(source),
            store=config.open_store(),
            host=record.id,
            limits=config.service_limits,
        )
        self.server = Server(self.service, record, port=config.port, limits=config.limits)
        self._source = source

    def start(self) -> None:
        """Take requests, and read the model that was asked for.

        Raises
        ------
        InvalidOption
            The port is taken.
        """
        self.server.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._ending.set())
        if self._pipe is not None:
            _aside(self._watch)
        if self._source is not None:
            _aside(self._load, self._source)

    def wait(self) -> None:
        """Wait for the end."""
        while not self._ending.wait(LOOK_S):  # a signal is seen between two waits
            if self._config.parent is not None and not self._config.parent.is_alive():
                log.info("the notebook server is gone")
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

    def _watch(self) -> None:
        """Read the pipe to its end; whatever comes is not for this process."""
        assert self._pipe is not None, "there is a pipe to watch"
        while self._pipe.read(1):
            pass
        log.info("the notebook server has closed the pipe")
        self._ending.set()


def _aside(function: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, name="mlxnb-aside", daemon=True).start()
