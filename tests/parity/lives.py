"""Engines that come and go over one folder of KV, with a tiny model each."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.running import until

from mlxnb.cache.disk.limits import Limits
from mlxnb.cache.disk.tier import DiskTier
from mlxnb.cache.shelf import Shelf
from mlxnb.sessions.history import History
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.local_session import LocalSession
from mlxnb.sessions.results import Results

from .bench import NEVER
from .families import FAMILIES, WIDE, Family
from .spy import Spy, watch

MIB = 2**20
PATIENCE_S = 60.0
"""Seconds after which a test gives up; none takes as long."""
QUICK = Limits(delay_s=0.0, poll_s=0.0, tidy_s=0.05, off_s=0.0)

KINDS = {
    "llama": {},
    "llama contiguous": {},
    "gemma3_text": {"rewindable": False},
    "lfm2": {"rewindable": False},
    "qwen3_next": {"rewindable": False},
    "mamba2": {"rewindable": False},
    "llama 8 bits": {"kv_bits": 8},
}
"""A family, and how it is loaded."""


def save(kind: str, folder: Path) -> Path:
    """Write the folder of a kind's tiny model."""
    family, _, how = kind.partition(" ")
    made = Family(family, WIDE) if how == "8 bits" else FAMILIES[family]
    return made.save(folder)


class Life:
    """An engine with a model over a folder of KV."""

    def __init__(
        self,
        kv: Path,
        model: Path,
        kind: str = "llama",
        budget: int = 64 * MIB,
        limits: Limits = QUICK,
        **load: Any,
    ) -> None:
        os.environ["MLXNB_PAGED"] = "0" if kind.endswith("contiguous") else "1"
        self.disk = DiskTier(kv, 256 * MIB, limits)
        self.engine = LocalEngine(budget=budget, disk=self.disk)
        if (bits := KINDS[kind].get("kv_bits")) is not None:
            load.setdefault("kv_bits", bits)
        self.name = self.engine.load(model, progress=False, **load).name
        self.spy: Spy = watch(self.engine, self.name)

    @property
    def shelf(self) -> Shelf:
        shelf = self.engine.core.store.shelf
        assert shelf is not None
        return shelf

    @property
    def namespace(self) -> str:
        return self.shelf.namespace(self.engine.core.runtime(self.name).key)

    def session(self, history: History | None = None, **options: Any) -> LocalSession:
        """A session whose answers are as long as they may be, with a past that it had elsewhere."""
        session = self.engine.session(self.name, logit_bias=NEVER, **options)
        if history is not None:
            key = self.engine.core.runtime(self.name).key
            session.go_on_from(history, key, Results())
        return session

    def written(self) -> None:
        """Wait until all that has ended is on disk."""
        until(lambda: self.shelf.packer.idle, PATIENCE_S)
        assert self.disk.flush(PATIENCE_S)

    def close(self) -> None:
        self.engine.close()


Open = Callable[..., Life]


def sweep(folder: Path) -> None:
    """Delete a folder that somebody may be writing into."""
    while folder.exists():
        for path in folder.iterdir():
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            folder.rmdir()
