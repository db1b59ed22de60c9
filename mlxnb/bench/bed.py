"""An engine with one model, and requests of plain token ids for it."""

from __future__ import annotations

import datetime as dt
import gc
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxnb.bench.null_model import null_model
from mlxnb.bench.prompts import Prompts
from mlxnb.cache.disk.tier import DiskTier
from mlxnb.engine.core import Core
from mlxnb.engine.events import Done
from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Sampling
from mlxnb.models.source import ModelSource
from mlxnb.records.turn import TurnRecord
from mlxnb.text.answer import AnswerMachine

WARM_UP = 1024
"""Tokens that are computed before anything is measured; the size of prefill chunks settles."""


class Stopwatch:
    """A detokenizer that notes when each token came, on ``time.perf_counter``'s scale."""

    def __init__(self, detokenizer: Any) -> None:
        self.stamps: list[float] = []
        self._detokenizer = detokenizer
        self.finalize = detokenizer.finalize

    def add_token(self, token: int) -> None:
        """Note the time, and pass the token on."""
        self.stamps.append(time.perf_counter())
        self._detokenizer.add_token(token)

    @property
    def last_segment(self) -> Any:
        """What was added since the last look."""
        return self._detokenizer.last_segment


class Bed:
    """An engine that keeps no ledger, and its one model.

    Attributes
    ----------
    core
        The engine.
    runtime
        The model in it.
    prompts
        Prompts for it.
    """

    def __init__(self, core: Core, name: str) -> None:
        self.core = core
        self.runtime = core.runtime(name)
        self.prompts = Prompts(self.runtime.vocab)
        self._weights = self._active()

    @classmethod
    def open(cls, source: ModelSource, folder: Path | None = None) -> Bed:
        """An engine with a model, warmed up; in ``folder`` it keeps KV on disk."""
        disk = DiskTier(folder) if folder is not None else None
        core = Core(on_end=lambda request, reason: None, disk=disk)
        core.load(source)
        bed = cls(core, source.name)
        context = bed.runtime.info.context_length or WARM_UP
        bed.run(bed.request(bed.prompts.draw(min(WARM_UP, context - 8)), 8, reuse=False))
        bed.forget()
        return bed

    @classmethod
    def null(cls) -> Bed:
        """An engine with the null model."""
        core = Core(on_end=lambda request, reason: None)
        core.install("null", core.owner.call(null_model))
        return cls(core, "null")

    def close(self) -> None:
        """End the engine."""
        self.core.stop()

    # --- requests -----------------------------------------------------------------------------

    def request(
        self, prompt: list[int], max_tokens: int, owner: str | None = None, reuse: bool = True
    ) -> Request:
        """A greedy request that no token ends; its clock starts now."""
        now = dt.datetime.now(dt.UTC)
        return Request(
            model=self.runtime.info.name,
            prompt=prompt,
            sampling=Sampling(max_tokens=max_tokens).settled(),
            record=TurnRecord("t", None, self.runtime.info.name, "python", "bench", now),
            machine=_plain(),
            detokenizer=Stopwatch(self.runtime.tokenizer.detokenizer),
            end_tokens=frozenset(),
            owner=owner,
            reuse=reuse,
        )

    def start(self, *requests: Request) -> None:
        """Plan and queue requests in this order."""
        for request in requests:
            self.core.plan(request)
            self.core.submit(request, limited=False)

    def wait(self, *requests: Request) -> None:
        """Wait for the end of requests; an error of theirs is raised."""
        for request in requests:
            while not isinstance(event := request.events.get(), Done):
                pass
            if event.error is not None:
                raise event.error

    def run(self, *requests: Request) -> None:
        """Start requests together and wait for all."""
        self.start(*requests)
        self.wait(*requests)

    def until(self, request: Request, tokens: int) -> None:
        """Wait until a request has so many tokens, or has ended."""
        while len(stamps(request)) < tokens and not request.done:
            time.sleep(0.001)

    def stop(self, request: Request) -> None:
        """Cancel a request that runs and wait for its end."""
        request.cancelled = True
        self.wait(request)

    # --- memory -------------------------------------------------------------------------------

    def kv_bytes(self) -> int:
        """Bytes that MLX holds beyond the weights, between two steps."""
        return self._active() - self._weights

    def _active(self) -> int:
        def look() -> int:
            gc.collect()
            mx.clear_cache()
            return mx.get_active_memory()

        return self.core.owner.call(look)

    def forget(self) -> None:
        """Give all KV back that no request uses."""

        def evict() -> None:
            store = self.core.store
            budget, store.budget = store.budget, 0
            store.budget = budget

        self.core.owner.call(evict)


def first_s(request: Request) -> float:
    """Seconds from a request's making to its first token."""
    assert request.clock.first_token is not None, "it has answered"
    return request.clock.first_token - request.clock.arrived


def stamps(request: Request) -> list[float]:
    """When each of its tokens came."""
    watch = request.detokenizer
    assert isinstance(watch, Stopwatch), "the bench's requests have one"
    return watch.stamps


def gaps(request: Request) -> list[float]:
    """Seconds between its tokens."""
    return [b - a for a, b in pairwise(stamps(request))]


def _plain() -> AnswerMachine:
    return AnswerMachine(
        think=None,
        starts_in_reasoning=False,
        tool_tags=None,
        parse_tool=None,
        tools=None,
        stops=(),
    )
