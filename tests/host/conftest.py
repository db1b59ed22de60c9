"""Real servers on real sockets, stopped after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxnb.host.server import Server
from mlxnb.link.client import Client
from mlxnb.link.record import HostRecord

from .doubles import ECHO, HandService
from .world import World


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records, sockets and keys of this test alone."""
    folder = tmp_path / "state"
    monkeypatch.setenv("MLXNB_STATE", str(folder))
    return folder


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start a server over a service; of these protocols, or the toy one."""
    servers = []

    def start(service: Any, **options: Any) -> Server:
        options.setdefault("doors", [ECHO])
        server = Server(service, HostRecord.here("kernel"), **options)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop(0.0)


@pytest.fixture
def hand() -> HandService:
    return HandService()


@pytest.fixture
def server(serve: Callable[..., Server], hand: HandService) -> Server:
    return serve(hand)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(server.record)
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A host whose model says two things."""
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    made = World.saying(tmp_path, "Hello.", "Again.")
    yield made
    made.close()
