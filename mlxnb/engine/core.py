"""The engine of a host: loaded models, their lanes, the prefix cache and the owner thread.

Tokens in, events out: it knows nothing of sessions, HTTP or notebooks. All of it may be called on
any thread.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from mlxnb.cache.disk.tier import DiskTier
from mlxnb.cache.store import PrefixCache
from mlxnb.engine.ending import OnEnd
from mlxnb.engine.lane import Lane
from mlxnb.engine.life import Life, Progress
from mlxnb.engine.loading import Loading
from mlxnb.engine.owner import Owner
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime
from mlxnb.errors import EngineClosed, EngineDied, NothingLoaded
from mlxnb.models.fingerprint import fingerprint
from mlxnb.models.load import LoadedModel
from mlxnb.models.memory import System
from mlxnb.models.source import ModelSource
from mlxnb.records.memory_row import MemoryRow
from mlxnb.records.tokens import WIDTH

log = logging.getLogger(__name__)


class Core:
    """Loads models and runs requests, all on one thread of its own.

    Parameters
    ----------
    on_end
        Called when a request has ended, before its waiter is told: on the engine's thread, or,
        if that is gone, on the one that noticed.
    budget
        Bytes for KV; None: chosen from the machine's memory and what is loaded.
    stuck_after
        Seconds after which a step counts as stuck.
    idle_after
        Seconds without work after which free buffers are given back.
    system
        Says how much memory there is; None: the system itself.
    disk
        Where KV is kept beyond memory and this process, closed with the engine; None: nowhere.
    """

    def __init__(
        self,
        on_end: OnEnd,
        budget: int | None = None,
        stuck_after: float = 300.0,
        idle_after: float = 30.0,
        system: System | None = None,
        disk: DiskTier | None = None,
    ) -> None:
        self.restarts = 0
        self.closed = False
        self._process = os.getpid()
        self._on_end = on_end
        self._budget = budget
        self._stuck_after, self._idle_after = stuck_after, idle_after
        self._system = system or System()
        self.disk = disk
        self._lock = threading.Lock()
        self._loading = threading.RLock()
        self._sources: dict[str, ModelSource] = {}
        self._life = self._begin()

    def _begin(self) -> Life:
        times = self._stuck_after, self._idle_after
        return Life(self._on_end, self._budget, *times, self._system, self.disk)

    @property
    def owner(self) -> Owner:
        """The thread that touches MLX."""
        return self._life.owner

    @property
    def store(self) -> PrefixCache:
        """The prefix cache."""
        return self._life.store

    # --- models -------------------------------------------------------------------------------

    def load(self, source: ModelSource, progress: Progress | None = None) -> Runtime:
        """Load a model, or return it if it is loaded with this adapter already.

        A model of that name with another adapter or content is replaced. A failed load changes
        nothing, and neither does one that is interrupted. ``progress`` is called with bytes done
        and in all, on the thread that waits.

        Raises
        ------
        ModelBroken, UnsupportedModel, NotEnoughMemory
            As `mlxnb.models.load.build`.
        """
        with self._loading:
            life = self._checked()
            there = life.lanes.get(source.name)
            if there is not None and there.runtime.key == fingerprint(source):
                return there.runtime
            loading = Loading(progress)
            try:
                runtime = life.owner.call(lambda: life.load(source, loading.note), loading.tell)
            except BaseException:
                loading.give_up()
                raise
            self._sources[source.name] = source
            loading.tell()
            return runtime

    def install(self, name: str, loaded: LoadedModel) -> Runtime:
        """Take in a model that was built elsewhere (by a bench or a test), as ``load`` does."""
        life = self._checked()
        return life.owner.call(lambda: life.install(name, loaded))

    def unload(self, name: str) -> None:
        """Drop a model and its KV; requests that run on it end with ``ModelUnloaded``.

        Raises
        ------
        NothingLoaded
            No model of that name is loaded.
        """
        with self._loading:
            life = self._checked()
            if name not in self.names():
                raise self._nothing(name)
            self._sources.pop(name, None)
            if name in life.lanes:
                life.owner.call(lambda: life.unload(name))

    def names(self) -> list[str]:
        """Names of the loaded models, in order of loading; one lost with a dead thread counts."""
        return list(dict.fromkeys([*self._sources, *self._life.lanes]))

    def runtimes(self) -> list[Runtime]:
        """The loaded models, in order of loading."""
        return [lane.runtime for lane in list(self._life.lanes.values())]

    def queues(self) -> dict[str, tuple[int, int]]:
        """How many requests wait and how many run, by the name of the model."""
        lanes = list(self._life.lanes.items())
        return {name: (len(lane.waiting), lane.running) for name, lane in lanes}

    def source(self, name: str) -> ModelSource | None:
        """Where a loaded model was loaded from, be it one lost with a dead thread."""
        return self._sources.get(name)

    def runtime(self, name: str) -> Runtime:
        """A loaded model; one that was lost with a dead thread is loaded again.

        Raises
        ------
        NothingLoaded
            No model of that name is loaded.
        """
        return self.lane(name).runtime

    def lane(self, name: str) -> Lane:
        """A loaded model's lane; see ``runtime``."""
        life, source = self._checked(), self._sources.get(name)
        if name not in life.lanes and source is not None:
            self.load(source)
        lane = self._life.lanes.get(name)
        if lane is None:
            raise self._nothing(name)
        return lane

    def _nothing(self, name: str) -> NothingLoaded:
        return NothingLoaded(
            f"no model {name!r} is loaded (loaded: {', '.join(self.names()) or 'none'})"
        )

    # --- requests -----------------------------------------------------------------------------

    def plan(self, request: Request) -> None:
        """Decide and pin what a request will reuse.

        Raises
        ------
        NothingLoaded, ModelUnloaded
            Its model is not loaded.
        """
        request.lane = self.lane(request.model)
        request.lane.admission.plan(request)
        assert request.plan is not None
        request.planned = request.plan.matched

    def submit(
        self,
        request: Request,
        limited: bool = True,
        accepted: Callable[[], None] = lambda: None,
    ) -> None:
        """Queue a planned request; its events come on ``request.events``. See `Waiting.put`.

        Raises
        ------
        QueueFull
            The model's admission limit is reached; the plan is released.
        ShortOfMemory
            The system has no memory for it now, whatever else ended.
        ModelUnloaded, EngineDied, EngineClosed
            What it was planned on is gone.
        """
        lane, plan = request.lane, request.plan
        assert lane is not None and plan is not None, "a request is planned before it is queued"
        try:
            self._life.check(lane, len(plan.prompt) // WIDTH)
            lane.waiting.put(request, limited, accepted)
        except BaseException:
            lane.admission.release(plan)
            raise
        self.owner.wake()

    def evict(self, block_id: str) -> None:
        """Let something of the prefix cache go; see `Hand.evict`."""
        life = self._checked()
        life.owner.call(lambda: life.store.hand.evict(block_id))

    def forget(self, key: str, salt: str, tokens: bytes, kept: int = 0) -> None:
        """Drop the KV of a conversation after its first ``kept`` tokens, on disk too.

        Parameters
        ----------
        key
            The content of the model, which need not be loaded.
        tokens
            Packed.
        """
        life = self._checked()
        life.owner.call(lambda: life.store.forget_tokens(key, salt, tokens, kept))

    # --- the thread ---------------------------------------------------------------------------

    def _checked(self) -> Life:
        if self.closed:
            raise EngineClosed("this engine was closed; mlxnb.engine() gives an open one")
        self.check()
        return self._life

    def check(self) -> None:
        """Start anew if the thread died or is stuck: what waits fails, models load on next use.

        Raises
        ------
        EngineDied
            This process was forked from the engine's: MLX's threads are not in it.
        """
        if os.getpid() != self._process:
            raise EngineDied(
                "this process was forked from the one that runs the engine, and MLX does not live "
                "through a fork: start it with multiprocessing's spawn method instead"
            )
        with self._lock:
            if self.closed or self.owner.healthy:
                return
            error = EngineDied(self.owner.ailment)
            log.error("%s", error)
            old, self._life = self._life, self._begin()
            self.restarts += 1
        old.owner.stop(timeout=0)
        old.abandon(error)

    def ready(self) -> None:
        """As ``check``, for whoever is about to ask for something.

        Raises
        ------
        EngineClosed
            It was closed.
        EngineDied
            As ``check``.
        """
        self._checked()

    def stop(self) -> None:
        """End the thread for good; requests that run end with ``EngineClosed``. Harmless twice."""
        with self._lock:
            self.closed = True
        self.owner.stop()
        self._life.abandon(EngineClosed("the engine was closed while this request ran"))
        self._sources.clear()
        if self.disk is not None:
            self.disk.close()

    # --- memory -------------------------------------------------------------------------------

    @property
    def budget(self) -> int:
        """Bytes for KV."""
        return self.store.budget

    @budget.setter
    def budget(self, value: int) -> None:
        life = self._checked()
        self._budget = value
        life.owner.call(lambda: life.set_budget(value))

    @property
    def spare_bytes(self) -> int:
        """Bytes that the system has beyond what is left to others."""
        return max(0, self._life.pressure.spare_bytes)

    def make_room(self, nbytes: int) -> int:
        """Give up KV that nobody uses, if so many bytes can be had then; the spare bytes now."""
        life = self._checked()
        return max(0, life.owner.call(lambda: life.pressure.make_room(nbytes)))

    def memory(self) -> MemoryRow:
        """What the engine holds and may hold, and what the system has left."""
        return self._life.memory()
