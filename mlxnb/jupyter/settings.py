"""What ``c.MlxNb`` sets."""

from __future__ import annotations

import sys
from typing import Any

from traitlets import Bool, Dict, Float, Int, List, Unicode
from traitlets.config import Configurable

from mlxnb.link.patience import WRITE_S

MIB = 2**20
GIB = 2**30
DAY_S = 86_400


class MlxNb(Configurable):
    """OpenAI's and Anthropic's routes on the notebook port, and the host behind them.

    No application of its own: the command-line aliases of one would take the name of ours.
    """

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
    disk_gib = Float(
        -1.0,
        help="GiB of KV that the headless host keeps on disk, for after its restart; 0: none, "
        "-1: a tenth of the disk and at most 50 GB.",
    ).tag(config=True)
    write_timeout_s = Float(
        WRITE_S, min=0.001, help="Seconds after which a client that takes nothing is given up."
    ).tag(config=True)
    idle_clear_s = Float(
        30.0, min=0, help="Seconds after the last answer until free buffers are given back."
    ).tag(config=True)
    idle_unload_s = Float(
        0.0, min=0, help="Seconds after the last answer until a model is unloaded; 0: never."
    ).tag(config=True)

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
            "disk": None if self.disk_gib < 0 else int(self.disk_gib * GIB),
            "write_timeout_s": self.write_timeout_s,
            "idle_clear_s": self.idle_clear_s,
            "idle_unload_s": self.idle_unload_s,
        }
