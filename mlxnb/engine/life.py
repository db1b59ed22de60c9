"""One life of an engine: its thread, what is loaded there, and its KV.

When the thread dies or is stuck all of it is given up, and another life begins. A stuck thread
that comes to itself again finds only its own, old life.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from pathlib import Path

from mlxnb import mlxlm
from mlxnb.cache.store import PrefixCache
from mlxnb.engine.ending import OnEnd
from mlxnb.engine.lane import Lane
from mlxnb.engine.owner import Owner
from mlxnb.engine.probe import examine
from mlxnb.engine.runtime import Runtime
from mlxnb.errors import MlxnbError, ModelBroken, ModelUnloaded
from mlxnb.models.cachedir import cache_dir
from mlxnb.models.load import LoadedModel, build, vocabulary
from mlxnb.models.source import ModelSource

MIB = 2**20
Progress = Callable[[int, int], None]


class Life:
    """Models, lanes and KV of one owner thread. All but the constructor runs on it, or after it.

    Parameters
    ----------
    on_end
        See `mlxnb.engine.ending.Ending`.
    budget
        Bytes for KV; None: chosen from the machine's memory and what is loaded.
    stuck_after, idle_after
        See `mlxnb.engine.owner.Owner`.
    """

    def __init__(
        self, on_end: OnEnd, budget: int | None, stuck_after: float, idle_after: float
    ) -> None:
        self.lanes: dict[str, Lane] = {}
        self.store = PrefixCache(budget or 256 * MIB)
        self._on_end = on_end
        self._budget = budget
        self.owner = Owner(self.step, _clear_cache, idle_after, stuck_after)
        try:
            self.owner.call(_prepare)
        except BaseException:
            self.owner.stop()
            raise

    def step(self) -> bool:
        """One step of every lane; False: none had anything to do."""
        return any([lane.step() for lane in list(self.lanes.values())])

    def running(self) -> bool:
        """Whether any model runs a request."""
        return any(lane.running for lane in self.lanes.values())

    # --- models -------------------------------------------------------------------------------

    def load(self, source: ModelSource, progress: Progress) -> Runtime:
        """Read a model and take it in; other models' requests go on between its layers."""

        def between(done: int, total: int) -> None:
            progress(done, total)  # raises if nobody waits for it any more
            self.owner.beat()
            self.step()

        loaded = build(source, between)
        return self.install(source.name, loaded, note=cache_dir() / "probes")

    def install(self, name: str, loaded: LoadedModel, note: Path | None = None) -> Runtime:
        """Take in a model that was read; one of that name is unloaded first.

        Parameters
        ----------
        note
            A folder that remembers what was found out about models; None: find it out anew.
        """
        runtime, layers = _examined(name, loaded, note)
        if name in self.lanes:
            self.unload(name)
        self.store.register(runtime.key, name, runtime.model, layers, runtime.paged)
        self.lanes[name] = Lane(runtime, self.store, self._on_end, self.running)
        self.set_budget(self._budget)
        return runtime

    def unload(self, name: str) -> None:
        """Drop a model and its KV; requests that run on it end with ``ModelUnloaded``."""
        lane = self.lanes.pop(name)
        lane.end_all(ModelUnloaded(f"{name} was unloaded while this request ran"))
        self.store.forget(lane.runtime.key, name)
        del lane
        self.set_budget(self._budget)
        gc.collect()
        _clear_cache()

    # --- memory and the end -------------------------------------------------------------------

    def set_budget(self, budget: int | None) -> None:
        """Bytes for KV; None: chosen from the machine's memory and what is loaded."""
        self._budget = budget
        weights = sum(lane.runtime.info.bytes or 0 for lane in self.lanes.values())
        self.store.budget = default_budget(weights) if budget is None else budget

    def abandon(self, error: Exception) -> None:
        """The thread is gone or given up: all requests end with ``error``."""
        lanes = list(self.lanes.values())
        self.lanes.clear()
        self.store = PrefixCache(0)  # the thread, if it is stuck, holds on to this life
        for lane in lanes:
            lane.abort_all(error)
        del lanes
        gc.collect()


def default_budget(weights: int) -> int:
    """Bytes for KV beside ``weights`` bytes of weights.

    A quarter of the memory, or 0.85 of what the device recommends to use, less weights and 1 GiB,
    if that is less; 256 MiB at the least.
    """
    import mlx.core as mx
    import psutil

    quarter = int(psutil.virtual_memory().total) // 4
    working_set = mx.device_info().get("max_recommended_working_set_size")
    if not working_set:
        return max(256 * MIB, quarter)
    room = int(0.85 * int(working_set)) - weights - 1024 * MIB
    return max(256 * MIB, min(quarter, room))


def _prepare() -> None:
    """Look at mlx-lm, and let MLX keep weights in memory as mlx-lm's own loops do."""
    from mlx_lm.utils import maybe_set_recommended_wired_limit

    mlxlm.check()
    maybe_set_recommended_wired_limit()


def _clear_cache() -> None:
    import mlx.core as mx

    mx.clear_cache()


def _examined(
    name: str, loaded: LoadedModel, note: Path | None
) -> tuple[Runtime, list[mlxlm.LayerShape]]:
    key = loaded.info.fingerprint or name
    vocab = vocabulary(loaded.config, loaded.tokenizer)
    try:
        abilities = examine(loaded.model, vocab, note and note / f"{key}.json")
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # they hold the model
        if isinstance(error, MlxnbError):
            raise
        raise ModelBroken(f"{name} was read and does not run: {error}") from None
    runtime = Runtime(
        info=loaded.info,
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        key=key,
        vocab=vocab,
        layers=abilities.depth,
        end_tokens=frozenset(loaded.tokenizer.eos_token_ids),
        rewindable=bool(abilities.layers),
        batchable=abilities.batchable,
        paged=abilities.paged,
    )
    return runtime, abilities.layers
