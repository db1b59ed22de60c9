"""A long day of an engine: several talk at once, models come and go, and nothing may go wrong.

Rounds of a second or so. In a round, threads talk as they like while budgets change, blocks are
pinned and models are unloaded under them; where there are faults, the disk, the system's memory
and the engine's thread fail too. Between rounds nothing may be in use, every answer is compared
with a cold run of plain mlx-lm over contiguous caches, and memory is looked at.
"""

from __future__ import annotations

import faulthandler
import gc
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np
import psutil
from mlx.utils import tree_flatten
from parity.settled import assert_settled
from parity.spy import TOLERANCE, Logits

from mlxnb import mlxlm
from mlxnb.engine.runtime import Rate
from mlxnb.errors import EngineDied, NotEnoughMemory, NothingLoaded, UnknownBlock
from mlxnb.records.turn import TurnRecord
from mlxnb.sessions.local import LocalEngine

from .faults import Faults
from .models import Model
from .talker import Talker

TALKERS = 5
ACTS = 12
"""What each talker does in a round."""
BUDGETS = [400_000, 1_200_000, 3_000_000, 64_000_000]
"""Bytes: from what refuses a long prompt to what holds everything."""
LITTLE = [100_000, 250_000, 1_000_000, 64_000_000]
"""The same for models whose sequences take little."""
HANG_S = 240
"""Seconds in which a round ends, however slow the machine."""
CHUNKS = (3, 8, 17, 40, 200)
"""Tokens of a prefill chunk: there is time for much between them."""
EXPECTED = ("BudgetExceeded", "ModelUnloaded")
"""Errors with which a turn may end here."""
BY_FAULTS = ("EngineDied", "ShortOfMemory")
"""And where there are faults."""
RENEW = 12
"""Rounds that an engine lives, where it has a disk to go on from."""


@dataclass
class Seen:
    """What has been so far; bytes: ``beyond`` is MLX's memory less weights and KV, per round."""

    rounds: int = 0
    turns: int = 0
    compared: int = 0
    close: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    joined: int = 0
    disk: int = 0
    forgotten: int = 0
    engines: int = 1
    faults: Counter[str] = field(default_factory=Counter)
    unloads: int = 0
    pins: int = 0
    paged: int = 0
    beyond: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)

    def slope(self, sizes: list[int]) -> float:
        """Bytes a round, least squares over the second half."""
        half = sizes[len(sizes) // 2 :]
        if len(half) < 2:
            return 0.0
        return float(np.polyfit(np.arange(len(half)), np.array(half, float), 1)[0])

    def __str__(self) -> str:
        # mlx-lm itself leaves some 33 KiB at each load, and the ledger keeps 10,000 rows
        memory = f"{(self.beyond or [0])[-1]:,} B, {self.slope(self.beyond):+.0f} B a round"
        resident = (
            f"{(self.resident or [0])[-1] >> 20} MiB, {self.slope(self.resident):+.0f} B a round"
        )
        return "\n".join(
            [
                f"{self.rounds} rounds, {self.turns} turns, {self.compared} tokens compared with "
                f"a cold run's ({self.close} of them where two logits were within {TOLERANCE})",
                f"ends {dict(self.ends)}, errors {dict(self.errors)}",
                f"cache {dict(self.ways)}, misses {dict(self.misses)}",
                f"joined tokens {self.joined}, unloads {self.unloads}, pins {self.pins}, "
                f"rounds with paged caches {self.paged}",
                f"tokens from disk {self.disk}, sessions forgotten {self.forgotten}, engines "
                f"{self.engines}, faults {dict(self.faults)}",
                f"MLX's memory beyond weights and KV {memory}; resident {resident}",
            ]
        )


class Soak:
    """An engine with these models, and those who talk to it.

    Parameters
    ----------
    faults
        What goes wrong around it; None: nothing does, and there is no disk.
    budgets
        Bytes for KV, the least and the most of them at times for a whole round.
    """

    def __init__(
        self,
        engine: LocalEngine,
        models: list[Model],
        seed: str,
        faults: Faults | None = None,
        budgets: Sequence[int] = BUDGETS,
    ) -> None:
        self.seen = Seen()
        self.engine = engine
        self.random = random.Random(seed)
        self.models = models
        self.faults, self.budgets = faults, budgets
        self._seed = seed
        self._tolerance = {str(model.folder): model.tolerance for model in models}
        self._begin()

    def _begin(self) -> None:
        seed = f"{self._seed} {self.seen.engines}"
        self.talkers = [Talker(self.engine, self.names, f"{seed} {n}") for n in range(TALKERS)]
        for model in self.models:
            self.load(model)

    def names(self) -> list[str]:
        """The models that are loaded."""
        return self.engine.core.names()

    def load(self, model: Model) -> None:
        self.engine.load(model.folder, progress=False, kv_bits=model.kv_bits)

    def renew(self) -> None:
        """An engine goes, and another one comes to what it has left on disk."""
        assert self.faults is not None, "without a disk nothing is left"
        self.engine.close()
        self.engine = self.faults.open()
        self.seen.engines += 1
        self._begin()

    # --- a round ------------------------------------------------------------------------------

    def round(self) -> None:
        """Everybody does some things while we meddle; then all of it is looked at.

        Every other round is harsh: little memory throughout, and models go often.
        """
        harsh = self.seen.rounds % 2 == 0
        meddle = self.meddle_harshly if harsh else self.meddle
        if self.faults is not None and self.seen.rounds % RENEW == RENEW - 1:
            self.renew()
        late = time.monotonic() + HANG_S

        def meanwhile() -> None:
            assert time.monotonic() < late, self.hanging()
            with self.forgiving():
                meddle()

        with _no_hang(), _random_chunks(self.random.choice(CHUNKS)), self.trouble():
            self.engine.core.budget = min(self.budgets) if harsh else max(self.budgets)
            _together([*map(_acting, self.talkers)], meanwhile)
            if self.faults is not None:
                self.faults.mend()
            self.unpin()
            for model in self.models:
                self.load(model)
            self.rebudget()
            self.look()

    def trouble(self) -> AbstractContextManager[None]:
        """Where faults may happen, if there are any."""
        return nullcontext() if self.faults is None else self.faults.at_work()

    def forgiving(self) -> AbstractContextManager[None]:
        """Where models, memory and the thread may go under us, if there are faults."""
        if self.faults is None:
            return nullcontext()
        return suppress(EngineDied, NotEnoughMemory, NothingLoaded)

    def hanging(self) -> str:
        """What has been, and how far the requests are that have not ended."""
        core = self.engine.core
        requests = [
            f"{request.model} {request.number}: {request.reached} of {len(request.prompt)} tokens "
            f"reached, {len(request.generated)} generated, {request.setbacks} setbacks"
            for lane in list(core._life.lanes.values())
            for request in list(lane._unfinished)
        ]
        held = f"{core.store.nbytes:,} of {core.budget:,} bytes, {core.queues()}"
        return "\n".join(["a round hangs", str(self.seen), held, *requests])

    def meddle(self) -> None:
        """Something that others do not expect, while they talk."""
        acts: list[Callable[[], None]] = [self.rebudget, self.rebudget, self.pin, self.pin]
        acts += [self.unpin, self.show, self.show]
        if self.random.random() < 0.03:
            acts = [self.replace]
        if self.faults is not None and self.random.random() < 0.15:
            acts = [self.faults.happen]
        self.random.choice(acts)()
        time.sleep(self.random.random() * 0.03)

    def meddle_harshly(self) -> None:
        """Models go while something runs on them."""
        acts = [self.replace, self.pin, self.unpin, self.show]
        if self.faults is not None:
            acts.append(self.faults.happen)
        self.random.choice(acts)()
        time.sleep(self.random.random() * 0.05)

    def rebudget(self) -> None:
        self.engine.core.budget = self.random.choice(self.budgets)

    def pin(self) -> None:
        names = self.engine.prefix_cache().block_id.tolist()
        if names:
            with suppress(UnknownBlock):  # evicted meanwhile
                self.engine.pin(self.random.choice(names))
                self.seen.pins += 1

    def unpin(self) -> None:
        cache = self.engine.prefix_cache()
        for name in cache.block_id[cache.pinned]:
            with suppress(UnknownBlock):
                self.engine.pin(name, pinned=False)

    def show(self) -> None:
        assert len(self.engine.turns()) >= 0 and len(self.engine.sessions()) >= 0
        self.engine.prefix_cache()

    def replace(self) -> None:
        """A model goes, whatever runs on it, and may come back."""
        model = self.random.choice(self.models)
        if str(model.folder) in self.names():
            self.engine.unload(str(model.folder))
            self.seen.unloads += 1
        if self.random.random() < 0.7:
            self.load(model)

    # --- what must hold -----------------------------------------------------------------------

    def look(self) -> None:
        """Nothing in use, answers as without reuse, memory as before."""
        assert_settled(self.engine)
        seen, store = self.seen, self.engine.core.store
        seen.rounds += 1
        seen.paged += any(space.paged for space in store.spaces())
        for talker in self.talkers:
            turns, talker.turns = talker.turns, []
            for turn in turns:
                self.look_at(talker.copies.get(turn) or self.engine.ledger[turn])
            talker.copies.clear()
            seen.forgotten, talker.forgotten = seen.forgotten + talker.forgotten, 0
        if self.faults is not None:
            seen.faults = self.faults.seen
        if self.faults is not None:
            gc.collect()  # what a dead thread has left
        seen.beyond.append(self.engine.core.owner.call(self._beyond))
        seen.resident.append(psutil.Process().memory_info().rss)

    def look_at(self, record: TurnRecord) -> None:
        """One turn: how it ended, its sums, and its tokens."""
        seen = self.seen
        seen.turns += 1
        seen.ends[str(record.finish_reason)] += 1
        seen.ways[record.cache] += 1
        seen.misses[str(record.miss_reason)] += 1
        seen.joined += record.joined_tokens
        seen.disk += record.disk_tokens
        if record.finish_reason == "error":
            name = str(record.error).partition(":")[0]
            assert name in (EXPECTED if self.faults is None else EXPECTED + BY_FAULTS), record.error
            seen.errors[name] += 1
        if not record.prompt:  # forgotten, by another thread than its own
            assert record.finish_reason is not None
            return
        assert 0 <= record.usage.cached_tokens < len(record.prompt)
        assert 0 <= record.disk_tokens + record.joined_tokens <= record.usage.cached_tokens
        assert record.reuse_enabled or record.usage.cached_tokens == 0
        if record.output:
            self.compare(record, self.cold(record))

    def compare(self, record: TurnRecord, logits: Logits) -> None:
        """Each token is the cold run's, unless two logits were too close to tell."""
        for number, token in enumerate(record.output):
            row = logits[len(record.prompt) - 1 + number]
            gap = float(row.max() - row[token])
            assert gap <= self._tolerance[record.model], (
                f"{record.turn_id} of {record.model}: token {number} is {token}, a cold run has "
                f"{row.argmax()}, by {gap}"
            )
            self.seen.close += token != int(row.argmax())
        self.seen.compared += len(record.output)

    def cold(self, record: TurnRecord) -> Logits:
        """Logits ``(tokens, vocab)`` of prompt and answer in one run over contiguous caches."""
        model = self.engine.core.runtime(record.model).model
        tokens = mx.array([[*record.prompt, *record.output]])

        def run() -> Logits:
            out = model(tokens, cache=mlxlm.new_caches(model))[0]
            return np.array(out.astype(mx.float32))

        return self.engine.core.owner.call(run)

    def _beyond(self) -> int:
        """MLX's memory beyond weights and KV, in bytes."""
        mx.clear_cache()
        core = self.engine.core
        models = [runtime.model for runtime in core.runtimes()]
        weights = sum(a.nbytes for m in models for _, a in tree_flatten(m.parameters()))
        return int(mx.get_active_memory()) - weights - core.store.nbytes


def _acting(talker: Talker) -> Callable[[], None]:
    def act() -> None:
        for _ in range(ACTS):
            talker.act()

    return act


def _together(acts: list[Callable[[], None]], meanwhile: Callable[[], None]) -> None:
    """Run functions in threads of their own, and another again and again; raise a failure."""
    failures: list[BaseException] = []

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        meanwhile()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@contextmanager
def _no_hang() -> Iterator[None]:
    """End the process, telling where each thread is, if this takes too long."""
    faulthandler.dump_traceback_later(1.5 * HANG_S, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def _random_chunks(size: int) -> Iterator[None]:
    """Prefill in chunks of this size."""
    standing = Rate.chunk
    Rate.chunk = property(lambda rate: size)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Rate.chunk = standing  # type: ignore[method-assign]
