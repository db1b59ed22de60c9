"""The engine of a host: loaded models, their lanes, the prefix cache and the owner thread.

Tokens in, events out: it knows nothing of sessions, HTTP or notebooks.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from typing import Any

from mlxnb import mlxlm
from mlxnb.cache.store import PrefixCache
from mlxnb.engine.lane import Lane
from mlxnb.engine.owner import Owner
from mlxnb.engine.probe import examine
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime
from mlxnb.errors import EngineClosed, EngineDied, ModelUnloaded, NothingLoaded
from mlxnb.models.cachedir import cache_dir
from mlxnb.models.fingerprint import fingerprint
from mlxnb.models.load import LoadedModel, build
from mlxnb.models.source import ModelSource
from mlxnb.records.tokens import pack
from mlxnb.records.turn import FinishReason

log = logging.getLogger(__name__)

MIB = 2**20
Progress = Callable[[int, int], None]


class Core:
    """Loads models and runs requests, all on one thread of its own.

    Parameters
    ----------
    on_end
        Called on the engine's thread when a request has ended, before its waiter is told.
    budget
        Bytes for KV; None: chosen from the machine's memory and what is loaded.
    stuck_after
        Seconds after which a step counts as stuck.
    """

    def __init__(
        self,
        on_end: Callable[[Request, FinishReason], None],
        budget: int | None = None,
        stuck_after: float = 300.0,
    ) -> None:
        mlxlm.check()
        self.restarts = 0
        self.closed = False
        self._on_end = on_end
        self._fixed_budget = budget
        self._stuck_after = stuck_after
        self._lock = threading.RLock()
        self._loading = threading.RLock()
        self._sources: dict[str, ModelSource] = {}
        self._start()

    def _start(self) -> None:
        """A fresh thread with nothing loaded."""
        self.store = PrefixCache(self._fixed_budget or 256 * MIB)
        self._lanes: dict[str, Lane] = {}
        lanes = self._lanes
        self.owner = Owner(
            lambda: step_all(lanes), idle=self._clear_idle, stuck_after=self._stuck_after
        )

    # --- models -------------------------------------------------------------------------------

    def load(self, source: ModelSource, progress: Progress | None = None) -> Runtime:
        """Load a model, or return it if it is loaded with this adapter already.

        A model of that name with another adapter or content is replaced. A failed load changes
        nothing.

        Raises
        ------
        ModelBroken, UnsupportedModel, NotEnoughMemory
            As `mlxnb.models.load.build`.
        """
        self._check_open()
        with self._loading:
            there = self._lanes.get(source.name)
            if there is not None and there.runtime.key == fingerprint(source):
                return there.runtime
            runtime = self.owner.call(lambda: self._load(source, progress))
            self._sources[source.name] = source
            return runtime

    def _load(self, source: ModelSource, progress: Progress | None) -> Runtime:
        lanes = self._lanes

        def between(done: int, total: int) -> None:
            """Other models' requests go on while this one is read."""
            step_all(lanes)
            if progress is not None:
                progress(done, total)

        return self._install(source.name, build(source, between))

    def install(self, name: str, loaded: LoadedModel) -> Runtime:
        """Take in a model that was built elsewhere (by a bench or a test), as ``load`` does."""
        return self.owner.call(lambda: self._install(name, loaded))

    def _install(self, name: str, loaded: LoadedModel) -> Runtime:
        lanes = self._lanes
        runtime, layers = self._examined(loaded)
        if name in lanes:
            self._unload(name)
        self.store.register(runtime.key, runtime.model, layers)
        lanes[name] = Lane(
            runtime, self.store, self._on_end, lambda: any(s.running for s in lanes.values())
        )
        self._set_budget()
        return runtime

    @staticmethod
    def _examined(loaded: LoadedModel) -> tuple[Runtime, list[mlxlm.LayerShape]]:
        key = str(loaded.info.fingerprint)
        vocab = _vocabulary(loaded)
        note = cache_dir() / "probes" / f"{key}.json"
        abilities = examine(loaded.model, vocab, note)
        runtime = Runtime(
            info=loaded.info,
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            key=key,
            vocab=vocab,
            end_tokens=frozenset(loaded.tokenizer.eos_token_ids),
            rewindable=bool(abilities.layers),
            batchable=abilities.batchable,
        )
        return runtime, abilities.layers

    def unload(self, name: str) -> None:
        """Drop a model and its KV; requests that run on it end with ``ModelUnloaded``.

        Raises
        ------
        NothingLoaded
            No model of that name is loaded.
        """
        with self._loading:
            self.lane(name)
            self._sources.pop(name, None)
            self.owner.call(lambda: self._unload(name))

    def _unload(self, name: str) -> None:
        import mlx.core as mx

        lane = self._lanes.pop(name)
        lane.end_all(ModelUnloaded(f"{name} was unloaded while this request ran"))
        if not any(other.runtime.key == lane.runtime.key for other in self._lanes.values()):
            self.store.forget(lane.runtime.key)
        del lane
        self._set_budget()
        gc.collect()
        mx.clear_cache()

    def names(self) -> list[str]:
        """Names of the loaded models, in order of loading; one lost with a dead thread counts."""
        return list(self._sources)

    def runtimes(self) -> list[Runtime]:
        """The loaded models, in order of loading."""
        return [lane.runtime for lane in list(self._lanes.values())]

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
        self._check_open()
        if name not in self._lanes and name in self._sources:
            self.load(self._sources[name])
        lane = self._lanes.get(name)
        if lane is None:
            loaded = ", ".join(self._lanes) or "none"
            raise NothingLoaded(f"no model {name!r} is loaded (loaded: {loaded})")
        return lane

    # --- requests -----------------------------------------------------------------------------

    def plan(self, request: Request) -> None:
        """Decide and pin what a request will reuse."""
        key = self.runtime(request.model).key
        packed = pack(request.prompt)
        if request.reuse:
            request.plan = self.store.plan(key, request.salt, packed, request.owner)
        else:
            request.plan = self.store.cold_plan(packed)

    def submit(
        self,
        request: Request,
        limited: bool = True,
        accepted: Callable[[], None] = lambda: None,
    ) -> None:
        """Queue a planned request; its events come on ``request.events``. See `Lane.submit`.

        Raises
        ------
        QueueFull
            The model's admission limit is reached; the plan is released.
        """
        assert request.plan is not None, "a request is planned before it is queued"
        try:
            self.lane(request.model).submit(request, limited, accepted)
        except Exception:
            self.store.release(request.plan)
            raise
        self.owner.wake()

    def _check_open(self) -> None:
        if self.closed:
            raise EngineClosed("this engine was closed; mlxnb.engine() gives an open one")
        self.check()

    def check(self) -> None:
        """Start anew if the thread died or is stuck: what waits fails, models load on next use."""
        with self._lock:
            if self.closed or self.owner.healthy:
                return
            log.error(self.owner.ailment)
            error = EngineDied(self.owner.ailment)
            lanes = list(self._lanes.values())
            self.owner.stop(timeout=0)
            self.restarts += 1
            self._start()
            for lane in lanes:
                lane.fail_all(error)

    def stop(self) -> None:
        """End the thread for good; requests that run end with ``EngineClosed``. Harmless twice."""
        with self._lock:
            self.closed = True
        self.owner.stop()
        for lane in list(self._lanes.values()):
            lane.fail_all(EngineClosed("the engine was closed while this request ran"))
        self._lanes.clear()
        self._sources.clear()

    # --- memory -------------------------------------------------------------------------------

    @property
    def budget(self) -> int:
        """Bytes for KV."""
        return self.store.budget

    @budget.setter
    def budget(self, value: int) -> None:
        self._check_open()
        self._fixed_budget = value
        self.owner.call(self._set_budget)

    def _set_budget(self) -> None:
        weights = sum(runtime.info.bytes or 0 for runtime in self.runtimes())
        self.store.budget = self._fixed_budget or default_budget(weights)
        self.store.shrink()

    def _clear_idle(self) -> None:
        import mlx.core as mx

        mx.clear_cache()


def step_all(lanes: dict[str, Lane]) -> bool:
    """One step of every lane; False: none had anything to do."""
    return any([lane.step() for lane in list(lanes.values())])


def default_budget(weights: int) -> int:
    """Bytes for KV beside ``weights`` bytes of weights.

    A quarter of the memory, or what the device recommends to use less weights and 1 GiB if that
    is less; 256 MiB at the least.
    """
    import mlx.core as mx
    import psutil

    quarter = psutil.virtual_memory().total // 4
    working_set = mx.device_info().get("max_recommended_working_set_size")
    if not working_set:
        return max(256 * MIB, quarter)
    room = int(0.85 * int(working_set)) - weights - 1024 * MIB
    return max(256 * MIB, min(quarter, room))


def _vocabulary(loaded: LoadedModel) -> int:
    """Width of the logits, which may be larger than the tokenizer."""
    config: dict[str, Any] = loaded.config
    size = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    return int(size or len(loaded.tokenizer))
