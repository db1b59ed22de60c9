"""``mlxnb serve``: a host in the foreground of a terminal."""

from __future__ import annotations

import logging

from mlxnb.host.config import Config
from mlxnb.host.headless import Headless

WAYS = """\
OpenAI's clients:    {url}/mlxnb/v1
Anthropic's clients: {url}/mlxnb
They send an mlxnb key; `mlxnb keys new NAME` makes one. Ctrl-C ends this host."""


def serve(config: Config) -> int:
    """Serve until Ctrl-C or SIGTERM; the process's exit status.

    Raises
    ------
    MlxnbError
        The port is taken, the model cannot be found, or the user's directories cannot be used.
    """
    logging.basicConfig(format="%(levelname)s: %(message)s")
    host = Headless(config)
    host.start()
    print(WAYS.format(url=host.server.record.url), flush=True)
    host.wait()
    host.stop()
    return 0
