"""A real host: an engine with scripted models, a service, a server on a socket and a port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anthropic import Anthropic
from openai import OpenAI
from scripted import Gate, model_of
from sessions.serving.world import scripted_source

from mlxnb.host.context import Limits
from mlxnb.host.server import Server
from mlxnb.link.client import Client
from mlxnb.link.places import store_file
from mlxnb.link.record import HostRecord
from mlxnb.models.source import ModelSource
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.service import Service
from mlxnb.sessions.serving.store import Store

MIB = 2**20


class World:
    """A host of its own for each test; ``close`` it at the end."""

    def __init__(self, sources: list[ModelSource], **limits: Any) -> None:
        self.engine = LocalEngine(budget=64 * MIB)
        for source in sources:
            self.engine.load_source(source, progress=False)
        record = HostRecord.here("kernel")
        self.service = Service(
            self.engine,
            catalog=Catalog(sources, aliases={"claude-*": "talker"}, machine=False),
            store=Store(store_file()),
            host=record.id,
        )
        self.server = Server(self.service, record, port=0, limits=Limits(**limits))
        self.server.start()
        self.client = Client(self.server.record)
        self._clients: list[OpenAI | Anthropic] = []

    @classmethod
    def saying(cls, folder: Path, *answers: str, **options: Any) -> World:
        """A host whose model, ``talker``, gives these answers."""
        limits = {name: options.pop(name) for name in ("keep_alive_s",) if name in options}
        return cls([scripted_source(folder / "talker", answers, **options)], **limits)

    def close(self) -> None:
        """Stop all of it."""
        for client in (self.client, *self._clients):
            client.close()
        self.server.stop(0.0)
        self.service.close()
        self.engine.close()

    @property
    def model(self) -> Any:
        """The scripted model itself."""
        return model_of(self.engine, "talker")

    def gate(self, calls: int = 0) -> Gate:
        """Let the model compute so many times, and then wait."""
        return Gate(self.model, calls)

    # --- clients, by the port -----------------------------------------------------------------

    @property
    def url(self) -> str:
        assert self.server.record.url is not None
        return f"{self.server.record.url}/mlxnb"

    def openai(self, key: str | None = None) -> OpenAI:
        client = OpenAI(base_url=f"{self.url}/v1", api_key=key or self.server.token, max_retries=0)
        self._clients.append(client)
        return client

    def anthropic(self, key: str | None = None) -> Anthropic:
        client = Anthropic(base_url=self.url, api_key=key or self.server.token, max_retries=0)
        self._clients.append(client)
        return client
