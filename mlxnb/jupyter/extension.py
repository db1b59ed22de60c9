"""The extension: its configuration, its routes, and what lives as long as the notebook server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import url_path_join
from tornado.web import RequestHandler
from traitlets import Bool, Dict, Float, Int, List, Unicode

from mlxnb.jupyter.activity import touch
from mlxnb.jupyter.hosts import Hosts
from mlxnb.jupyter.route import BASE, Route
from mlxnb.jupyter.supervisor import Supervisor
from mlxnb.link.record import HostRecord, publish, withdraw

MIB = 2**20
DAY_S = 86_400


class MlxNb(ExtensionApp):
    """OpenAI's and Anthropic's routes on the notebook port, under ``<base_url>mlxnb/``."""

    name = "mlxnb"
    description = "Local language models for HTTP clients, on the notebook port."

    start_host = Bool(
        True, help="Whether to start a headless host for models that no kernel serves."
    ).tag(config=True)
    host_python = Unicode(
        sys.executable,
        help="The Python that the headless host runs in; it has mlxnb with MLX.",
    ).tag(config=True)
    model = Unicode(
        help="A model that the headless host loads when it starts; empty: on their first request."
    ).tag(config=True)
    models_dir = Unicode(
        help="A folder of model folders, whose names are the models'; empty: none."
    ).tag(config=True)
    allowed_models = List(
        Unicode(),
        help="Globs of the models that clients may have loaded; empty: all there are.",
    ).tag(config=True)
    aliases = Dict(
        key_trait=Unicode(),
        value_trait=Unicode(),
        help='Globs of names that clients ask for, and models: {"claude-*": "demo"}.',
    ).tag(config=True)
    max_waiting = Int(
        16, min=0, help="Requests that may wait for a model; one more is answered with 429."
    ).tag(config=True)
    max_output_tokens = Int(
        0, min=0, help="The most tokens that an answer may have; 0: what fits the model's context."
    ).tag(config=True)
    body_limit_mib = Float(32.0, min=0.001, help="The largest request, in MiB.").tag(config=True)
    store = Bool(
        True, help="Whether responses are kept on disk, so that they can be continued."
    ).tag(config=True)
    retention_days = Float(
        7.0, min=1 / 1440, help="Days that a response is kept unless its request says otherwise."
    ).tag(config=True)
    idle_clear_s = Float(
        30.0, min=0, help="Seconds after the last answer until free buffers are given back."
    ).tag(config=True)
    idle_unload_s = Float(
        0.0, min=0, help="Seconds after the last answer until a model is unloaded; 0: never."
    ).tag(config=True)

    hosts: Hosts
    record: HostRecord | None = None

    @property
    def body_limit_bytes(self) -> int:
        """The largest body that is passed on."""
        return int(self.body_limit_mib * MIB)

    def host_config(self) -> dict[str, Any]:
        """What the headless host is configured with."""
        return {
            "model": self.model,
            "models_dir": self.models_dir,
            "allowed_models": list(self.allowed_models),
            "aliases": dict(self.aliases),
            "max_waiting": self.max_waiting,
            "max_output_tokens": self.max_output_tokens,
            "body_limit_bytes": self.body_limit_bytes,
            "store": self.store,
            "retention_s": self.retention_days * DAY_S,
            "idle_clear_s": self.idle_clear_s,
            "idle_unload_s": self.idle_unload_s,
        }

    # --- its life ------------------------------------------------------------------------------

    def initialize_handlers(self) -> None:
        """Take all paths under ``{base}``."""
        self._passing: set[RequestHandler] = set()
        supervisor = Supervisor(self.host_python, self.host_config, self.log)
        self.hosts = Hosts(supervisor if self.start_host else None, self.aliases)
        self.handlers.append((rf"/{BASE}(?:/.*)?", Route, {"extension": self}))

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Let kernels know that the routes are there."""
        url = url_path_join(serverapp.connection_url, BASE)
        self.record = HostRecord.here("notebook", url=url)
        publish(self.record)

    async def stop_extension(self) -> None:
        """End what was started."""
        if self.record is not None:
            withdraw(self.record)
        await self.hosts.close()

    # --- activity ------------------------------------------------------------------------------

    @contextmanager
    def passing(self, handler: RequestHandler) -> Iterator[None]:
        """Count a request while it is answered."""
        self._passing.add(handler)
        try:
            yield
        finally:
            self._passing.discard(handler)

    def current_activity(self) -> list[RequestHandler] | None:
        """Requests in flight: a server that is idle otherwise does not stop under them."""
        return list(self._passing) or None

    def touch(self, host: HostRecord) -> None:
        """Count what a host sends as activity of its kernel and of the server (W61)."""
        assert self.serverapp is not None, "an extension that answers is linked"
        touch(self.serverapp.web_app.settings, host)
