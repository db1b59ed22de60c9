"""One life of an engine: its thread, what is loaded there, and its KV.

When the thread dies or is stuck all of it is given up, and another life begins. A stuck thread
that comes to itself again finds only its own, old life.
"""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlxnb import mlxlm, native
from mlxnb.cache.disk.tier import DiskTier
from mlxnb.cache.layout import Layout
from mlxnb.cache.need import least_bytes
from mlxnb.cache.store import PrefixCache
from mlxnb.engine.activations import Activations
from mlxnb.engine.budget import default_budget, limit_pool, reserve_bytes
from mlxnb.engine.ending import OnEnd
from mlxnb.engine.headroom import Headroom
from mlxnb.engine.lane import Lane
from mlxnb.engine.owner import Owner
from mlxnb.engine.pressure import Pressure
from mlxnb.engine.probe import examine
from mlxnb.engine.quantized import quantize_kv
from mlxnb.engine.runtime import Runtime
from mlxnb.errors import MlxnbError, ModelBroken, ModelUnloaded
from mlxnb.models.cachedir import cache_dir
from mlxnb.models.load import LoadedModel, build, vocabulary
from mlxnb.models.memory import System, on_cpu, trim
from mlxnb.models.source import ModelSource
from mlxnb.records.memory_row import MemoryRow

MIB = 2**20
REST_S = 2.0
"""Seconds that what is not yet on disk may delay an unload, or the end."""
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
    system
        Says how much memory there is.
    disk
        Where KV is kept beyond memory and this process; None: nowhere.
    """

    def __init__(
        self,
        on_end: OnEnd,
        budget: int | None,
        stuck_after: float,
        idle_after: float,
        system: System,
        disk: DiskTier | None = None,
    ) -> None:
        self.lanes: dict[str, Lane] = {}
        self.store = PrefixCache(budget or 256 * MIB, disk)
        self._on_end = on_end
        self._budget = budget
        self.pressure = Pressure(
            lambda: self.store.room, system.available, reserve_bytes(system.memory())
        )
        self._headroom = Headroom(system.left)
        self.owner = Owner(
            self.step,
            _give_back,
            idle_after,
            stuck_after,
            watch=self.pressure.look,
            last=lambda: self._write_rest(lambda: None),
        )
        try:
            self.owner.call(_prepare)
        except BaseException:
            self.owner.stop()
            raise

    def step(self) -> bool:
        """One step of every lane; False: none had anything to do."""
        lanes = list(self.lanes.values())
        if any(lane.busy for lane in lanes):
            self.pressure.look()
        worked = any([lane.step() for lane in lanes])
        return self.store.write_behind(worked) or worked

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
        quantize_kv(loaded.model, source)
        return self.install(source.name, loaded, note=cache_dir() / "probes")

    def install(self, name: str, loaded: LoadedModel, note: Path | None = None) -> Runtime:
        """Take in a model that was read; one of that name is unloaded first.

        Parameters
        ----------
        note
            A folder that remembers what was found out about models; None: find it out anew.
        """
        runtime, layout = _examined(name, loaded, note)
        if name in self.lanes:
            self.unload(name)
        rate = runtime.rate  # the model must not be held by whoever asks for its rate
        self.store.register(
            runtime.key, name, runtime.model, layout, runtime.paged, lambda: rate.mean
        )
        self.lanes[name] = Lane(
            runtime, self.store, self._on_end, self.running, self.pressure.ease, self._headroom
        )
        self.set_budget(self._budget)
        return runtime

    def unload(self, name: str) -> None:
        """Drop a model and its KV; requests that run on it end with ``ModelUnloaded``."""
        lane = self.lanes.pop(name)
        lane.end_all(ModelUnloaded(f"{name} was unloaded while this request ran"))
        self._write_rest(self.step)
        self.store.forget(lane.runtime.key, name)
        del lane
        self.set_budget(self._budget)
        gc.collect()
        _give_back()

    def _write_rest(self, between: Callable[[], object]) -> None:
        """Have what has ended kept on disk, as far as that takes no longer than a moment."""
        until = time.monotonic() + REST_S
        while self.store.write_behind(self.running()) and time.monotonic() < until:
            self.owner.beat()
            between()

    # --- memory and the end -------------------------------------------------------------------

    def set_budget(self, budget: int | None) -> None:
        """Bytes for KV; None: chosen from the machine's memory and what is loaded."""
        self._budget = budget
        self.store.budget = default_budget(self._weights()) if budget is None else budget

    def memory(self) -> MemoryRow:
        """What is held and may be held, and what the system has left; on any thread."""
        import mlx.core as mx

        room, pressure = self.store.room, self.pressure
        with room.lock:
            snapshots = room.snapshots.nbytes
            return MemoryRow(
                weights_bytes=self._weights(),
                kv_bytes=room.nbytes - snapshots,
                snapshots_bytes=snapshots,
                pool_bytes=mx.get_cache_memory(),
                limit_bytes=room.limit,
                budget_bytes=room.budget,
                available_bytes=pressure.available(),
                reserve_bytes=pressure.reserve,
            )

    def _weights(self) -> int:
        return sum(lane.runtime.info.bytes or 0 for lane in list(self.lanes.values()))

    def check(self, lane: Lane, tokens: int) -> None:
        """Refuse a prompt for which the system has no memory now; see `Pressure.check`."""
        key = lane.runtime.key
        if any(space.key == key for space in self.store.spaces()):
            self.pressure.check(least_bytes(self.store.space(key), tokens))

    def abandon(self, error: Exception) -> None:
        """The thread is gone or given up: all requests end with ``error``."""
        lanes = list(self.lanes.values())
        self.lanes.clear()
        self.store = PrefixCache(0)  # the thread, if it is stuck, holds on to this life
        for lane in lanes:
            lane.abort_all(error)
        del lanes
        gc.collect()


def _prepare() -> None:
    """Look at mlx-lm; let MLX keep weights in memory as its loops do, and few free buffers."""
    from mlx_lm.utils import maybe_set_recommended_wired_limit

    mlxlm.check()
    maybe_set_recommended_wired_limit()
    limit_pool()


def _give_back() -> None:
    """Let the system have what is free."""
    import mlx.core as mx

    mx.clear_cache()
    trim()


def _examined(name: str, loaded: LoadedModel, note: Path | None) -> tuple[Runtime, Layout | None]:
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
        reuse=abilities.reuse,
        batchable=abilities.batchable,
        paged=abilities.paged,
        activations=_activations(loaded.config),
    )
    return runtime, abilities.layout


def _activations(config: dict[str, Any]) -> Activations | None:
    if on_cpu():
        return Activations.of(config, itemsize=4, fused=native.available())
    return Activations.of(config, itemsize=2)
