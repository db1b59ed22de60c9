"""Who may start: first come, first served, as far as rows and budget allow."""

from __future__ import annotations

import time
from collections.abc import Callable

from mlxnb.cache.plan import Plan
from mlxnb.cache.room import NoRoom
from mlxnb.cache.store import PrefixCache
from mlxnb.engine.ending import Ending
from mlxnb.engine.pressure import Ease, insist, never, refusal
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime
from mlxnb.engine.sampling import Sampler, make_processors
from mlxnb.engine.waiting import Waiting
from mlxnb.records.tokens import pack

READ_S = 0.01
"""Seconds that a request with nothing beside it waits for the disk at a time."""
MAX_ROWS = 8
"""Requests of one model that run at a time."""


class Admission:
    """Starts the waiting requests of one model.

    One whose prefix another is computing waits for it, and lets others pass. One that finds no
    room waits until something ends. Where nothing runs that could, all that wait give up what
    their plans keep; if that does not help, the first is refused.

    Parameters
    ----------
    elsewhere
        Whether another model runs something, whose end may make room.
    ease
        See `mlxnb.engine.pressure.Pressure.ease`.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: PrefixCache,
        waiting: Waiting,
        ending: Ending,
        elsewhere: Callable[[], bool],
        ease: Ease = never,
    ) -> None:
        self.rows = MAX_ROWS if runtime.batchable else 1
        self._runtime = runtime
        self._store = store
        self._waiting = waiting
        self._ending = ending
        self._elsewhere, self._ease = elsewhere, ease
        self._stalled = False
        self._crowded: int | None = None

    def admit(self, running: int) -> list[Request]:
        """Start what can start beside ``running`` requests; each has its live cache then."""
        started: list[Request] = []
        if self._crowded is not None and running >= self._crowded > 0:
            return started
        self._crowded = None
        for request in self._waiting:
            if running + len(started) >= self.rows:
                break
            alone = not (running or started or self._elsewhere())
            if self._is_awaiting(request, alone):
                continue
            try:
                if alone:  # nobody's end makes room: it takes what the system has now
                    insist(self._ease, request.cached is not None, self._start, request)
                else:
                    self._start(request)
                started.append(request)
            except NoRoom as error:
                if alone:
                    self._stall(request, error)
                break
            except Exception as error:
                self._refuse(request, error)
        self._stalled = self._stalled and not (running or started)
        return started

    def _is_awaiting(self, request: Request, alone: bool) -> bool:
        """Whether another computes its prefix, or it is read from disk; waits for that if alone."""
        plan = request.plan
        assert plan is not None, "a request is planned before it is queued"
        if self._store.fetching(plan, READ_S if alone else 0.0):
            return True
        return self._store.awaited(self._runtime.key, plan) is not None

    def _start(self, request: Request) -> None:
        assert request.plan is not None, "a request is planned before it is queued"
        request.live = self._store.admit(self._runtime.key, request.plan)
        if request.cached is None:
            request.clock.admitted = time.perf_counter()
            request.cached = request.reached = request.plan.matched
            more = max(0, request.cached - request.planned)
            request.record.disk_tokens = min(more, request.plan.fetched)
            request.record.joined_tokens = more - request.record.disk_tokens
            if request.plan.live is not None:
                request.record.hot_tokens = request.cached - more
        self._arm(request)
        self._waiting.take(request)
        request.progress()

    def _arm(self, request: Request) -> None:
        """A fresh sampler and processors, at the position that the request has reached."""
        request.sampler = Sampler(request.sampling, self._runtime.vocab)
        request.sampler.position = len(request.generated)
        context = len(request.prompt) + (request.sampling.max_tokens or 0)
        own = make_processors(request.sampling, context)
        request.processors = own + request.extra_processors

    # --- no room ------------------------------------------------------------------------------

    def _stall(self, request: Request, error: NoRoom) -> None:
        if self._stalled:  # by now all models' requests have given up what they kept
            advice = "raise engine().budget, or shorten the prompt"
            self._refuse(request, refusal("", advice, error))
            return
        self._stalled = True
        for waiting in self._waiting:
            self.plan(waiting, promise=False)

    def _refuse(self, request: Request, error: Exception) -> None:
        self._waiting.take(request)
        self._ending.fail(request, error)

    def plan(self, request: Request, promise: bool = True) -> None:
        """Plan anew what a request will reuse, and keep it if that is promised."""
        if request.plan is not None:
            self._store.release(request.plan)
        tokens, key = pack(request.tokens), self._runtime.key
        if request.reuse:
            request.plan = self._store.plan(
                key, request.salt, tokens, request.owner, promise, request.marks
            )
        else:
            request.plan = self._store.cold_plan(tokens)

    def release(self, plan: Plan) -> None:
        """Let go of what a plan kept, of a request that is not queued after all."""
        self._store.release(plan)

    def put_back(self, requests: list[Request], promise: bool = True) -> None:
        """Let requests that had started wait again, before all others."""
        for request in requests:
            self.plan(request, promise)
        self._waiting.put_back(requests)

    def make_way(self, request: Request, running: int) -> None:
        """Let a request wait until one of those that still run has ended, and all others too."""
        self._crowded = running
        self.put_back([request], promise=False)
