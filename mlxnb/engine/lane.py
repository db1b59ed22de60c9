"""One model's requests: waiting, in prefill, decoding. A step serves each of them a little.

Order of arrival decides who starts. A request whose prefix another one is computing waits for it.
After a step no request has waited longer than one prefill chunk or one decode step for its turn.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from mlxnb.cache.store import NoRoom, PrefixCache
from mlxnb.engine.group import BatchFailed, Group
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime
from mlxnb.engine.sampling import Sampler, make_processors
from mlxnb.engine.solo import prefill
from mlxnb.errors import BudgetExceeded, QueueFull
from mlxnb.records.tokens import pack
from mlxnb.records.turn import FinishReason

log = logging.getLogger(__name__)

MAX_ROWS = 8
"""Requests of one model that run at a time."""
MAX_WAITING = 16
"""Requests of one model that may wait."""
MAX_SETBACKS = 2
"""Failures of a batch that a request survives."""


class Lane:
    """The requests of one loaded model.

    Parameters
    ----------
    on_end
        Called with a request and its finish reason when its KV has been filed and before its
        waiter is told.
    elsewhere
        Whether another lane runs something, whose end may make room.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: PrefixCache,
        on_end: Callable[[Request, FinishReason], None],
        elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        self.runtime = runtime
        self.max_rows = MAX_ROWS
        self.max_waiting = MAX_WAITING
        self._store = store
        self._on_end = on_end
        self._elsewhere = elsewhere
        self._lock = threading.Lock()
        self._waiting: deque[Request] = deque()
        self._prefilling: deque[Request] = deque()
        self._groups: list[Group] = []

    # --- any thread ---------------------------------------------------------------------------

    def submit(
        self,
        request: Request,
        limited: bool = True,
        accepted: Callable[[], None] = lambda: None,
    ) -> None:
        """Queue a request; ``accepted`` is called when it is sure to run, before it does.

        Raises
        ------
        QueueFull
            ``max_waiting`` requests wait already (not where ``limited`` is False).
        """
        with self._lock:
            if limited and len(self._waiting) >= self.max_waiting:
                raise QueueFull(
                    f"{self.max_waiting} requests wait for {self.runtime.info.name} already; "
                    "try again when some have finished"
                )
            accepted()
            self._waiting.append(request)

    @property
    def busy(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self._waiting or self._prefilling or self._groups)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests in prefill and decoding."""
        return len(self._prefilling) + sum(len(g.rows) for g in self._groups)

    def requests(self) -> list[Request]:
        """All requests that have not ended."""
        rows = [r for g in self._groups for r in g.rows]
        return [*self._waiting, *self._prefilling, *rows]

    # --- the engine's thread ------------------------------------------------------------------

    def step(self) -> bool:
        """Admit, compute one prefill chunk, decode one token for each row; False: nothing to do."""
        if not self.busy:
            return False
        self._drop_cancelled()
        self._admit()
        self._prefill()
        for group in list(self._groups):
            self._decode(group)
        return True

    def _drop_cancelled(self) -> None:
        with self._lock:
            gone = [r for r in self._waiting if r.cancelled]
            for request in gone:
                self._waiting.remove(request)
        for request in gone:
            self._end(request, "cancelled")
        for request in [r for r in self._prefilling if r.cancelled]:
            self._prefilling.remove(request)
            self._end(request, "cancelled")
        for group in self._groups:
            for request in group.rows:
                if request.cancelled:
                    request.ending = "cancelled"
        self._sweep()

    def _sweep(self) -> None:
        """Take ended rows out of their groups."""
        for group in list(self._groups):
            for request in [r for r in group.rows if r.ending is not None]:
                group.remove(request)
                assert request.ending is not None
                self._end(request, request.ending)
            if not group.rows:
                self._groups.remove(group)

    # --- admission ----------------------------------------------------------------------------

    def _admit(self) -> None:
        rows = self.max_rows if self.runtime.batchable else 1
        for request in list(self._waiting):
            if self.running >= rows:
                return
            if self._is_awaiting(request):
                continue
            try:
                self._start(request)
            except NoRoom as error:
                if self.running or self._elsewhere():
                    return
                self._take(request)
                self._fail(request, BudgetExceeded(f"{error}; raise engine().budget or shorten it"))
            except Exception as error:
                self._take(request)
                self._fail(request, error)

    def _is_awaiting(self, request: Request) -> bool:
        plan = request.plan
        if plan is None or not request.reuse:
            return False
        return self._store.awaited(self.runtime.key, plan) is not None

    def _take(self, request: Request) -> None:
        with self._lock:
            if request in self._waiting:
                self._waiting.remove(request)

    def _start(self, request: Request) -> None:
        assert request.plan is not None, "a request is planned before it is queued"
        planned = request.plan.matched
        request.live = self._store.admit(self.runtime.key, request.plan)
        self._take(request)
        if request.cached is None:
            self._first_start(request, planned)
        else:
            request.record.recomputed_tokens += len(request.tokens) - request.plan.matched
        self._arm(request)
        request.progress()
        self._prefilling.append(request)

    def _first_start(self, request: Request, planned: int) -> None:
        assert request.plan is not None
        request.clock.admitted = time.perf_counter()
        request.cached = request.plan.matched
        request.record.joined_tokens = request.cached - planned

    def _arm(self, request: Request) -> None:
        """A fresh sampler and processors, at the position that the request has reached."""
        request.sampler = Sampler(request.sampling, self.runtime.vocab)
        request.sampler.position = len(request.generated)
        context = len(request.prompt) + (request.sampling.max_tokens or 0)
        own = make_processors(request.sampling, context)
        request.processors = own + request.extra_processors

    # --- prefill ------------------------------------------------------------------------------

    def _prefill(self) -> None:
        """One chunk of one request, in turn; a request whose prompt is done starts to decode."""
        if not self._prefilling:
            return
        request = self._prefilling.popleft()
        try:
            if prefill(self.runtime, request) > 0:
                self._prefilling.append(request)
            elif request.prefill_only:
                self._end(request, "stop")
            else:
                self._join(request)
        except Exception as error:
            self._fail(request, error)

    def _join(self, request: Request) -> None:
        group = next((g for g in self._groups if g.takes(request)), None)
        if group is None:
            group = Group(self.runtime, self._store)
            self._groups.append(group)
        try:
            group.add(request)
        except Exception:
            if request in group.rows:
                group.rows.remove(request)
            if not group.rows:
                self._groups.remove(group)
            raise

    # --- decode -------------------------------------------------------------------------------

    def _decode(self, group: Group) -> None:
        try:
            group.step()
        except BatchFailed as error:
            self._groups.remove(group)
            for request in group.abandon():
                self._set_back(request, error)
            return
        except Exception as error:
            self._groups.remove(group)
            for request in group.abandon():
                self._fail(request, error)
            return
        for request in group.rows:
            if request.fault is not None:
                request.fail(request.fault)
        self._sweep()

    def _set_back(self, request: Request, error: BatchFailed) -> None:
        """Compute a row of a failed batch again from what it had given out, at the head of the queue."""
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        log.warning("a batch failed (%s); its rows are computed again", type(cause).__name__)
        if request.live is not None:
            self._store.drop(request.live)
            request.live = None
        request.setbacks += 1
        if request.ending not in (None, "error"):
            self._end(request, request.ending)
        elif request.fault is not None or request.setbacks > MAX_SETBACKS:
            self._fail(request, request.fault or cause)
        else:
            self._plan_again(request)
            with self._lock:
                self._waiting.appendleft(request)

    def _plan_again(self, request: Request) -> None:
        if request.plan is not None:
            self._store.release(request.plan)
        packed = pack(request.tokens)
        if request.reuse:
            request.plan = self._store.plan(
                self.runtime.key, request.salt, packed, request.owner
            )
        else:
            request.plan = self._store.cold_plan(packed)

    # --- the end ------------------------------------------------------------------------------

    def _fail(self, request: Request, error: Exception) -> None:
        """End a request with an error; its KV may be unsound and is dropped."""
        request.error = error
        if request.live is not None:
            self._store.drop(request.live)
            request.live = None
        self._end(request, "error")

    def _end(self, request: Request, reason: FinishReason) -> None:
        """File the KV, close the text, tell the ledger, then the waiter."""
        if request.plan is not None:
            self._store.release(request.plan)
        live, request.live = request.live, None
        if live is not None:
            if request.reuse and reason != "error":
                self._store.retire(live, carve=request.prefill_only)
            else:
                self._store.drop(live)
        try:
            reason = request.close_text(reason)
        except Exception as error:
            reason, request.error = "error", error
        try:
            self._on_end(request, reason)
        finally:
            request.finish(reason, request.error)

    def end_all(self, error: Exception) -> None:
        """End everything with an error, between steps; nothing is filed."""
        for request in self.requests():
            self._fail(request, error)
        self._clear()

    def fail_all(self, error: Exception) -> None:
        """End everything; used when the engine's thread is gone, so nothing is filed."""
        for request in self.requests():
            if not request.done:
                request.error, request.live = error, None
                self._on_end(request, "error")
                request.finish("error", error)
        self._clear()

    def _clear(self) -> None:
        self._waiting.clear()
        self._prefilling.clear()
        self._groups.clear()
