"""The models of a service: which there are, what is known of them, and which are in memory."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from mlxnb.engine.runtime import Runtime
from mlxnb.errors import ModelNotFound, NotEnoughMemory
from mlxnb.models.folder import read_config
from mlxnb.models.info import context_length
from mlxnb.models.source import ModelSource
from mlxnb.records.turn import TurnRecord
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.activity import Activity
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.known import Known
from mlxnb.sessions.serving.limits import Limits
from mlxnb.sessions.serving.loads import Loads, Progress
from mlxnb.sessions.texts import Texts


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model as clients see it; ``created`` in seconds since 1970, ``context_length`` tokens."""

    id: str
    created: int
    context_length: int | None
    loaded: bool


class Models:
    """Finds, loads and unloads the models of an engine.

    Attributes
    ----------
    lock
        To be held while a request is queued: no idle model is unloaded meanwhile.
    loads
        Loads that requests wait for.
    """

    def __init__(
        self, engine: LocalEngine, catalog: Catalog, limits: Limits, activity: Activity
    ) -> None:
        self.lock = threading.RLock()
        self.loads = Loads(self._load, self.is_loaded, limits.waiting)
        self._engine, self._catalog = engine, catalog
        self._limits, self._activity = limits, activity
        self._known = Known()

    # --- names --------------------------------------------------------------------------------

    def find(self, asked: str) -> str:
        """The model that a name stands for; see `Catalog.find`."""
        return self._catalog.find(asked, self._engine.core.names())

    def texts(self, name: str) -> tuple[Texts, ModelSource | None]:
        """What its prompts need of a model, and where to load it from; None: it is loaded.

        Raises
        ------
        ModelNotFound
            It is gone.
        ModelBroken
            Its files cannot be read.
        """
        runtime = self.runtime(name)
        if runtime is not None:
            return self._engine.texts(runtime), None
        source = self._engine.core.source(name) or self._catalog.source(name)
        if source is None:
            raise ModelNotFound(f"the model {name!r} is not there any more", param="model")
        return self._known.texts(source), source

    def runtime(self, name: str) -> Runtime | None:
        """A model that is in memory."""
        return next((r for r in self._engine.core.runtimes() if r.info.name == name), None)

    def is_loaded(self, name: str) -> bool:
        """Whether a model is in memory."""
        return self.runtime(name) is not None

    def cards(self) -> list[ModelCard]:
        """All models that can be asked for."""
        return [self.card(name) for name in self._catalog.names(self._engine.core.names())]

    def card(self, asked: str) -> ModelCard:
        """One of them, under the name that it was asked by.

        Raises
        ------
        ModelNotFound
            There is none of that name.
        """
        name = self.find(asked)
        runtime = self.runtime(name)
        if runtime is not None:
            path, length = runtime.info.path, runtime.info.context_length
        else:
            source = self._engine.core.source(name) or self._catalog.source(name)
            path = source.path if source is not None else None
            length = context_length(read_config(path)) if path is not None else None
        created = int(path.stat().st_mtime) if path is not None and path.exists() else 0
        return ModelCard(asked, created, length, runtime is not None)

    # --- memory -------------------------------------------------------------------------------

    def _load(self, source: ModelSource, progress: Progress) -> None:
        """Load a model, in the place of idle ones where it does not fit beside them."""
        began, well = time.perf_counter(), False
        try:
            while not self.is_loaded(source.name):
                try:
                    self._engine.take_in(source, progress)
                except NotEnoughMemory:
                    if not self._unload_oldest():
                        raise
            well = True
        finally:
            self._activity.loaded(source.name, time.perf_counter() - began, well)

    def _unload_oldest(self) -> bool:
        """Unload the model that has not been used for longest; False: all are in use."""
        with self.lock:
            idle = [(seconds, name) for name, seconds in self._idle()]
            if idle:
                self._engine.unload(max(idle)[1])
            return bool(idle)

    def unload_idle(self) -> None:
        """Unload what has not been used for as long as is allowed."""
        longest = self._limits.idle_unload_s
        if longest is None or self.loads.names:
            return
        with self.lock:
            for name, seconds in self._idle():
                if seconds >= longest:
                    self._engine.unload(name)

    def _idle(self) -> list[tuple[str, float]]:
        """Models that nobody uses now, and for how many seconds nobody has."""
        rows = self._engine.ledger.rows()
        names = [runtime.info.name for runtime in self._engine.core.runtimes()]
        found = []
        for name in names:
            ours = self._activity.idle_s(name)
            if ours is not None and not _runs(name, rows):
                ended = self._engine.runner.ends.get(name, -math.inf)
                found.append((name, min(ours, time.monotonic() - ended)))
        return found


def _runs(name: str, rows: Sequence[TurnRecord]) -> bool:
    """Whether a turn of a model has not ended."""
    return any(row.model == name and row.finish_reason is None for row in rows)
