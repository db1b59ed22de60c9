"""A remote engine, and the engine of its host for what a notebook could not do."""

from __future__ import annotations

from typing import Any

from mlxnb.engine.core import Core
from mlxnb.host.remote.engine import RemoteEngine
from mlxnb.host.server import Server
from mlxnb.link.record import HostRecord
from mlxnb.models.info import ModelInfo
from mlxnb.models.source import ModelSource
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.service import Service

MIB = 2**20


class Attached(RemoteEngine):
    """Starts a host of its own; ``end`` stops it."""

    def __init__(self) -> None:
        self.local = LocalEngine(budget=64 * MIB)
        record = HostRecord.here("headless")
        self.service = Service(
            self.local, catalog=Catalog([], machine=False), store=None, host=record.id
        )
        self.server = Server(self.service, record)
        self.server.start()
        super().__init__(self.server.record)

    @property
    def core(self) -> Core:
        """The host's, to look at."""
        return self.local.core

    @property
    def ledger(self) -> Any:
        """The host's, to look at."""
        return self.local.ledger

    def load_source(self, source: ModelSource, progress: bool = True) -> ModelInfo:
        """Load a scripted model, whose code no request would run."""
        return self.local.load_source(source, progress)

    def end(self) -> None:
        """Stop the host too."""
        self.close()
        self.server.stop(0.0)
        self.service.close()
        self.local.close()
