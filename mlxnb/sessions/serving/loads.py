"""Loads that requests wait for: one for all that need the same model."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from mlxnb.engine.loading import GivenUp
from mlxnb.errors import QueueFull
from mlxnb.models.source import ModelSource

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


class Waiter(Protocol):
    """A request that waits for a model."""

    @property
    def gone(self) -> bool:
        """Whether it does not wait any more."""

    def loaded(self, error: Exception | None) -> None:
        """The load has ended, well or with an error; called once, on the load's thread."""


class Load:
    """One model on its way into memory, and who waits for it, in order of arrival."""

    def __init__(self, source: ModelSource) -> None:
        self.source = source
        self.began = time.perf_counter()
        self.waiters: list[Waiter] = []


class Loads:
    """Loads models on threads of their own.

    Parameters
    ----------
    load
        Loads a model; what it is given is to be called now and then, and raises to give up.
    is_loaded
        Whether a model is there.
    limit
        Requests that may wait for one load.
    """

    def __init__(
        self,
        load: Callable[[ModelSource, Progress], None],
        is_loaded: Callable[[str], bool],
        limit: int,
    ) -> None:
        self._load, self._is_loaded, self._limit = load, is_loaded, limit
        self._lock = threading.Lock()
        self._loads: dict[str, Load] = {}

    @property
    def names(self) -> list[str]:
        """Models that are being loaded."""
        return list(self._loads)

    def waiting(self, name: str) -> int:
        """Requests that wait for a model to be loaded."""
        load = self._loads.get(name)
        return 0 if load is None else sum(not waiter.gone for waiter in load.waiters)

    def join(self, source: ModelSource, waiter: Waiter) -> bool | None:
        """Wait for a model: True: as the one whose load it is; None: the model is loaded.

        Raises
        ------
        QueueFull
            As many wait as may.
        """
        with self._lock:
            load = self._loads.get(source.name)
            if load is None and self._is_loaded(source.name):
                return None
            if load is not None:
                if self.waiting(source.name) >= self._limit:
                    raise QueueFull(
                        f"{self._limit} requests wait for {source.name} to be loaded; try again "
                        "when some have finished"
                    )
                load.waiters.append(waiter)
                return False
            load = self._loads[source.name] = Load(source)
            load.waiters.append(waiter)
        threading.Thread(target=self._run, args=(load,), name="mlxnb-load", daemon=True).start()
        return True

    def _run(self, load: Load) -> None:
        error: Exception | None = None
        try:
            self._load(load.source, lambda done, total: self._check(load))
        except Exception as raised:
            error = raised
            if not isinstance(raised, GivenUp):
                log.warning("%s was not loaded: %s", load.source.name, type(raised).__name__)
        with self._lock:
            self._end(load)
            waiters = list(load.waiters)
        for waiter in waiters:
            waiter.loaded(error)

    def _check(self, load: Load) -> None:
        """Give a load up that nobody waits for; whoever comes now begins another one."""
        with self._lock:
            if all(waiter.gone for waiter in load.waiters):
                self._end(load)
                raise GivenUp("nobody waits for this model any more")

    def _end(self, load: Load) -> None:
        if self._loads.get(load.source.name) is load:
            del self._loads[load.source.name]
