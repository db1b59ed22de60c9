"""Where clients talk to: a notebook server, the tap before it, and a host behind it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from anthropic import Anthropic
from jupyter.server import BASE_URL, Server, notebook_server
from link.fake_host import until
from openai import OpenAI

from . import trusting_host
from .gate import Gate, gated
from .judge import judge
from .kernel import Kernel
from .tap import Tap

Client = OpenAI | Anthropic
ALIASES = {"claude-*": "talker", "gpt-*": "talker"}
HEADLESS_ALONE = pytest.mark.parametrize("shared", ["headless"], indirect=True)
"""For what does not depend on the kind of host: both have the same application behind one port."""


class Place:
    """A running notebook server with the extension, as clients see it."""

    def __init__(self, server: Server, models: Path, kernel: Kernel | None = None) -> None:
        self.server, self.models, self.kernel = server, models, kernel
        self.tap = Tap(urlsplit(server.root).port or 0)
        self.url = f"http://127.0.0.1:{self.tap.port}{BASE_URL}mlxnb"
        self._clients: list[Client] = []

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.tap.close()

    def judge(self) -> None:
        """Let all that has gone by since the last time be judged."""
        for exchange in self.tap.take():
            judge(f"{BASE_URL}mlxnb", exchange)

    # --- clients ------------------------------------------------------------------------------

    def openai(self, key: str | None = None, **options: Any) -> OpenAI:
        options = {"max_retries": 0, "timeout": 100} | options
        client = OpenAI(base_url=f"{self.url}/v1", api_key=key or self.server.key, **options)
        self._clients.append(client)
        return client

    def anthropic(self, key: str | None = None, **options: Any) -> Anthropic:
        options = {"max_retries": 0, "timeout": 100} | options
        client = Anthropic(base_url=self.url, api_key=key or self.server.key, **options)
        self._clients.append(client)
        return client

    # --- the host -----------------------------------------------------------------------------

    def gate(self, model: str, calls: int = 0) -> AbstractContextManager[Gate]:
        """Let a model take so many more steps, and then wait."""
        return gated(self.models / model, calls)

    def loading(self, model: str) -> AbstractContextManager[Gate]:
        """Let a model's load wait."""
        return gated(self.models / model, barrier="loading")

    def control(self, method: str, path: str, **more: Any) -> Any:
        """A control route's answer, which the server's owner gets."""
        answer = self.server.ask(method, f"/api{path}", headers=self.server.jupyter, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def turns(self) -> list[dict[str, Any]]:
        """The rows of all turns, oldest first."""
        rows: list[dict[str, Any]] = self.control("GET", "/turns")["turns"]
        return rows

    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        in_flight: int = self.control("GET", "/status")["in_flight"]
        return in_flight == 0

    def wait_idle(self) -> None:
        """Wait until nothing is in flight."""
        until(self.is_idle)


def trusting_python(folder: Path) -> str:
    """A Python whose ``-m mlxnb.host`` is the tests' own; see `trusting_host`."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{trusting_host.__file__}" "$@"\n')
    path.chmod(0o700)
    return str(path)


@contextmanager
def headless_place(folder: Path, models: Path, **config: Any) -> Iterator[Place]:
    """A notebook server whose headless host has the tests' models."""
    config = {
        "host_python": trusting_python(folder),
        "models_dir": str(models),
        "aliases": ALIASES,
    } | config
    with notebook_server(folder / "server", **config) as server:
        place = Place(server, models)
        try:
            yield place
        finally:
            place.close()


@contextmanager
def kernel_place(folder: Path, models: Path, **config: Any) -> Iterator[Place]:
    """A notebook server that starts no host, and a kernel of it that serves the tests' models."""
    with notebook_server(folder / "server", start_host=False, aliases=ALIASES, **config) as server:
        kernel = Kernel(server)
        kernel.serve(models)
        place = Place(server, models, kernel)
        try:
            yield place
        finally:
            place.close()
            kernel.close()
