"""What `%mlx_serve` does: this kernel's engine for clients, and how they reach it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from mlxnb.errors import InvalidOption
from mlxnb.host.kernel import KernelHost
from mlxnb.host.remote.engine import RemoteEngine
from mlxnb.link.places import saved_key_file
from mlxnb.link.record import HostRecord
from mlxnb.notebook.placing import notebook_server
from mlxnb.sessions.local import LocalEngine

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.sessions.engine import Engine

KEY = "notebook"
"""The name of the key that the lines for clients read from its file."""

LINES = """\
OpenAI's clients:    base_url {base}/v1
Anthropic's clients: base_url {base}
The key is read from its file or from the environment; make it once, in a terminal:
    mlxnb keys new {key} --save

Python, OpenAI:
    from pathlib import Path; from openai import OpenAI
    client = OpenAI(base_url="{base}/v1", api_key=Path("{file}").expanduser().read_text().strip())
    client.responses.create(model="{model}", input="Hello").output_text
Python, Anthropic:
    from pathlib import Path; from anthropic import Anthropic
    client = Anthropic(base_url="{base}", api_key=Path("{file}").expanduser().read_text().strip())
    client.messages.create(model="{model}", max_tokens=64,
                           messages=[{{"role": "user", "content": "Hello"}}])
Claude Code:
    ANTHROPIC_BASE_URL={base} ANTHROPIC_AUTH_TOKEN="$(cat {shell_file})" \\
        claude --model {shell_model}
Codex:
    MLXNB_API_KEY="$(cat {shell_file})" codex --model {shell_model} \\
        -c model_provider=mlxnb -c model_providers.mlxnb.name=mlxnb \\
        -c model_providers.mlxnb.base_url={base}/v1 \\
        -c model_providers.mlxnb.env_key=MLXNB_API_KEY \\
        -c model_providers.mlxnb.wire_api=responses"""

THROUGH_HUB = """\
From other machines, through JupyterHub: {beyond} in place of {base},
    with the key in the client's environment; make one that is not saved: mlxnb keys new laptop"""


class Served:
    """A host as a notebook holds it: where clients find it.

    Attributes
    ----------
    url
        Base URL of Anthropic's clients.
    openai_url
        Base URL of OpenAI's clients.
    """

    def __init__(self, url: str, host: KernelHost | None) -> None:
        self.url, self._host = url, host

    def __repr__(self) -> str:
        return f"Served(url={self.url!r})"

    @property
    def openai_url(self) -> str:
        """Base URL of OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def key(self) -> str:
        """What this notebook's own clients may send as their key on the kernel's own port.

        It is in this process's memory alone and ends with it; do not print it.

        Raises
        ------
        InvalidOption
            The kernel has no port of its own: clients of the notebook port need an mlxnb key.
        """
        if self._host is None or self._host.record.url is None:
            raise InvalidOption(
                "the kernel has no port of its own; serve with --port 0, or make a key with "
                "`mlxnb keys new NAME` for the notebook port"
            )
        return self._host.server.token


def serve(engine: Engine, port: int | None) -> tuple[str, Served]:
    """Serve a kernel's engine, or say where it is served already; what to print, and a handle."""
    server = notebook_server()
    if isinstance(engine, RemoteEngine):
        return _attached(engine, server, port)
    assert isinstance(engine, LocalEngine), "an engine is of this process or of another"
    host, said = _serving(engine), "serving already"
    if host is None:
        alone = server is None and port is None
        title = os.environ.get("JPY_SESSION_NAME", "").rpartition("/")[2] or "kernel"
        host = KernelHost.start(engine, 0 if alone else port, title, kernel_id())
        engine.served, said = host, "serving"
    elif port is not None and host.record.url is None:
        raise InvalidOption("this kernel is served already, without a port; --stop first")
    lines = [f"{said} this kernel's engine as host {host.record.id}"]
    if server is None:
        lines.append("on a port of its own: no notebook server with mlxnb's extension started it")
    own = host.record if port is not None or server is None else None
    base = _base(server, own)
    return "\n".join([*lines, *_lines(base, engine, own)]), Served(base, host)


def _attached(
    engine: RemoteEngine, server: HostRecord | None, port: int | None
) -> tuple[str, Served]:
    if port is not None:
        raise InvalidOption(
            "this kernel uses the engine of another process, which opens no port here; "
            "%mlx_load --here loads into this kernel"
        )
    if server is None and engine.record.url is None:
        raise InvalidOption("the host of this engine has no port, and there is no notebook server")
    said = f"this kernel uses host {engine.record.id}, which is served already"
    own = engine.record if server is None else None
    base = _base(server, own)
    return "\n".join([said, *_lines(base, engine, own)]), Served(base, None)


def _base(server: HostRecord | None, own: HostRecord | None) -> str:
    """The base URL: of the kernel's own port where it has one that was asked for."""
    if own is not None:
        assert own.url is not None, "a host whose port was asked for has one"
        return f"{own.url}/mlxnb"
    assert server is not None and server.url is not None
    return server.url.rstrip("/")


def _lines(base: str, engine: Engine, own: HostRecord | None) -> list[str]:
    """How clients reach ``base``; a Hub's proxy passes on to a notebook port, not to ``own``."""
    told = [lines_for(base, _model(engine))]
    beyond = through_hub()
    if beyond is not None and own is None:
        told.append(THROUGH_HUB.format(beyond=beyond, base=base))
    return told


def through_hub() -> str | None:
    """The base URL by which JupyterHub's proxy passes requests on; None: there is no Hub.

    A Hub that does not know its own address (``c.JupyterHub.public_url``) leaves it to the reader.
    Source: the environment that JupyterHub gives to its users' servers.
    """
    prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX")
    if not prefix:
        return None
    public = os.environ.get("JUPYTERHUB_PUBLIC_URL")
    domain = os.environ.get("JUPYTERHUB_HOST")  # where each user has one
    url = public or f"{domain or '<address of the Hub>'}{prefix}"
    return f"{url.rstrip('/')}/mlxnb"


def kernel_id() -> str | None:
    """Jupyter's id of this kernel; None: this process is none."""
    import ipykernel

    try:
        name = Path(ipykernel.get_connection_file()).stem
    except RuntimeError:
        return None
    return name.removeprefix("kernel-")


def _model(engine: Engine) -> str:
    models = engine.models()
    loaded = models[models["loaded"]]["name"].tolist()
    return str(loaded[-1]) if loaded else "demo"


def lines_for(base: str, model: str) -> str:
    """How clients are pointed at a base URL; no key is in it."""
    path, home = saved_key_file(KEY), Path.home()
    near = path.is_relative_to(home)  # a saved notebook need not tell whose it is
    file = f"~/{path.relative_to(home)}" if near else str(path)
    return LINES.format(
        base=base,
        key=KEY,
        file=file,
        model=model,
        shell_file="~/" + shlex.quote(file[2:]) if near else shlex.quote(file),
        shell_model=shlex.quote(model),
    )


def status(engine: Engine) -> pd.DataFrame:
    """One row about the host: requests, queue, in flight; none where nothing is served."""
    from mlxnb.host.status import no_status

    if isinstance(engine, RemoteEngine):
        return engine.status()
    host = _serving(engine)
    return no_status() if host is None else host.server.status()


def stop(engine: Engine) -> str:
    """End this kernel's server; what to print."""
    if isinstance(engine, RemoteEngine):
        raise InvalidOption("another process serves this engine; it is stopped there")
    host = _serving(engine)
    if host is None:
        return "nothing is served here"
    host.stop()
    return f"host {host.record.id} has stopped"


def _serving(engine: Engine) -> KernelHost | None:
    """What serves an engine of this process at this moment."""
    host: KernelHost | None = engine.served if isinstance(engine, LocalEngine) else None
    return host if host is not None and host.serving else None
