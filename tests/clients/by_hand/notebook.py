"""A notebook server as its own process, a host with a scripted model, and what clients sent it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from jupyter.server import Server as NotebookServer
from jupyter.server import notebook_server
from link.fake_host import until
from scripted import model_of
from sessions.serving.world import scripted_source

from mlxnb.host.door import Asked, Door
from mlxnb.host.doors import DOORS
from mlxnb.host.server import Server
from mlxnb.link.places import store_file
from mlxnb.link.record import HostRecord, records
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.service import Service
from mlxnb.sessions.serving.store import Store

MODEL = "talker"
CONTEXT = 2**20
COLUMNS = [
    "source",
    "prompt_tokens",
    "cached_tokens",
    "prefill_tokens",
    "output_tokens",
    "cache",
    "ttft_s",
    "finish_reason",
    "miss_reason",
]


@dataclass
class Notebook:
    """A notebook server whose host is in this process.

    Attributes
    ----------
    bodies
        What clients asked for, each with its route's name.
    """

    server: NotebookServer
    host: Server
    engine: LocalEngine
    bodies: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def base(self) -> str:
        """Where Anthropic's clients look; OpenAI's add ``/v1``."""
        return self.server.base

    @property
    def key(self) -> str:
        return self.server.key

    def turns(self) -> pd.DataFrame:
        """A row for each request, in the columns that tell what was reused."""
        return self.engine.turns()[COLUMNS]

    def fall_silent(self, seconds: float) -> None:
        """Let the next prefill take so long, once."""
        model: Any = model_of(self.engine, MODEL)

        def sleep() -> None:
            model.on_call = lambda: None
            time.sleep(seconds)

        model.on_call = sleep

    def save(self, file: Path) -> None:
        """Keep what clients asked for, as JSON lines."""
        lines = [json.dumps({"route": name, "body": body}) for name, body in self.bodies]
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")


@contextmanager
def notebook(folder: Path, answers: Sequence[str], **model: Any) -> Iterator[Notebook]:
    """Serve a model that gives these answers, whose folder's code this process trusts.

    ``MLXNB_STATE`` is to be a directory of this run's own.
    """
    source = scripted_source(
        folder / MODEL, answers, MODEL, max_position_embeddings=CONTEXT, **model
    )
    engine = LocalEngine(stuck_after=3600)
    engine.load_source(source, progress=False)
    record = HostRecord.here("kernel")
    aliases = {"claude-*": MODEL}
    catalog = Catalog([source], aliases=aliases, machine=False)
    service = Service(engine, catalog=catalog, store=Store(store_file()), host=record.id)
    bodies: list[tuple[str, Any]] = []
    host = Server(service, record, doors=[noting(door, bodies) for door in DOORS])
    host.start()
    try:
        until(lambda: any(MODEL in one.models for one in records("kernel")))
        with notebook_server(folder / "jupyter", start_host=False, aliases=aliases) as server:
            yield Notebook(server, host, engine, bodies)
    finally:
        host.stop(0.0)
        service.close()
        engine.close()


def noting(door: Door, bodies: list[tuple[str, Any]]) -> Door:
    """The same protocol, with what is asked noted."""

    def understand(service: Service, body: Any, caller: str) -> Asked:
        bodies.append((door.name, body))
        return door.understand(service, body, caller)

    return replace(door, understand=understand)
