"""Turns from their start to their row: orders to queued requests, ended requests to turns."""

from __future__ import annotations

import datetime as dt
import logging
import time
from array import array
from collections.abc import Callable
from typing import Any, Protocol

from mlxnb.engine.core import Core
from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Sampling
from mlxnb.errors import InvalidOption
from mlxnb.records.diagnosis import diagnose
from mlxnb.records.ledger import Ledger
from mlxnb.records.spans import forks
from mlxnb.records.turn import FinishReason, Source, Turn, TurnRecord, Usage
from mlxnb.sessions import views
from mlxnb.sessions.draft import Draft
from mlxnb.sessions.held import hold
from mlxnb.sessions.local_reply import LocalReply
from mlxnb.sessions.local_session import LocalSession
from mlxnb.sessions.order import Order, tool_list, tools_digest
from mlxnb.sessions.shape import Shape
from mlxnb.sessions.template import Rendered
from mlxnb.sessions.texts import Texts

log = logging.getLogger(__name__)


class Waiter(Protocol):
    """What is told that a request has ended, and its row is complete."""

    def ended(self, request: Request) -> None:
        """Called on the engine's thread, or where that is gone on another; must not raise."""


class Turns:
    """Starts turns on an engine core of its own, and files them in a ledger when they end.

    Parameters
    ----------
    host
        What the turns' rows name as their host.
    budget, **core
        For `mlxnb.engine.core.Core`.

    Attributes
    ----------
    ends
        When the last turn of each model ended, on ``time.monotonic``'s scale.
    """

    def __init__(self, host: str, budget: int | None, **core: Any) -> None:
        self.ledger = Ledger()
        self.core = Core(self._ended, budget, **core)
        self.host = host
        self.ends: dict[str, float] = {}
        self._waiters: dict[str, Waiter] = {}

    # --- turns of sessions --------------------------------------------------------------------

    def start(
        self,
        texts: Texts,
        session: LocalSession,
        draft: Draft,
        sampling: Sampling,
        source: Source,
        arrived: float,
        shape: Shape,
    ) -> LocalReply:
        """Check, plan and queue a session's next turn.

        Raises
        ------
        BadSchema, ContextOverflow, InvalidOption, QueueFull
            Nothing was touched.
        """
        settled = texts.settled(sampling, len(draft.prompt.tokens))
        order = _session_order(session, draft.prompt, settled, source, arrived, shape)
        requests = [self.request(texts, order, number) for number in range(settled.n or 1)]

        def settle() -> Turn:
            for request in requests:
                session.computed.add(request)
            turn, *others = (_turn_of(texts, request) for request in requests)
            turn.choices = [turn, *others] if others else []
            shape.mark(turn)
            session.settle(draft, requests[0], turn)
            return turn

        return self._queued(requests, settle)

    def warm(
        self, texts: Texts, session: LocalSession, head: Rendered, source: Source, arrived: float
    ) -> LocalReply:
        """Queue the computation of the KV of a head.

        Raises
        ------
        ContextOverflow, InvalidOption, QueueFull
            Nothing was touched.
        """
        if not head.tokens:
            raise InvalidOption("there is nothing to warm: no two prompts begin alike")
        settled = texts.settled(Sampling(), len(head.tokens))
        request = self.request(texts, _session_order(session, head, settled, source, arrived))
        request.prefill_only = True

        def settle() -> Turn:
            session.computed.add(request)
            return _turn_of(texts, request)

        return self._queued([request], settle)

    def _queued(self, requests: list[Request], settle: Callable[[], Turn]) -> LocalReply:
        """Queue the requests of one reply: all of them, or none."""
        reply = LocalReply(requests, self.core.check, settle)
        try:
            for request in requests:
                self.core.plan(request)
                self.queue(request, reply, limited=request is requests[0])
        except BaseException:
            reply.cancel()
            raise
        return reply

    # --- any turn -----------------------------------------------------------------------------

    def request(self, texts: Texts, order: Order, number: int = 0) -> Request:
        """Sample ``number`` of a turn; each has a seed of its own."""
        own = Sampling(seed=((order.sampling.seed or 0) + number) % 2**64).over(order.sampling)
        tools = tool_list(order.tools)
        request = Request(
            model=texts.name,
            prompt=order.prompt.tokens,
            sampling=own,
            record=self._record(texts, order, own),
            machine=texts.machine(order.prompt.opens_reasoning, tools, own.stop or (), order.form),
            detokenizer=texts.tokenizer.detokenizer,
            end_tokens=texts.end_tokens,
            salt=order.salt,
            owner=f"{order.owner}#{number}" if number else order.owner,
            marks=forks(order.prompt.spans),
            reuse=order.reuse,
        )
        if order.form is not None:
            hold(request, texts.vocabulary, order.form, order.reasons, order.begun)
        request.clock.arrived, request.clock.validated = order.arrived, time.perf_counter()
        return request

    def _record(self, texts: Texts, order: Order, sampling: Sampling) -> TurnRecord:
        return TurnRecord(
            turn_id=self.ledger.new_id(),
            session=order.session,
            model=texts.name,
            source=order.source,
            host=self.host,
            started_at=dt.datetime.now(dt.UTC),
            fingerprint=texts.key,
            salt=order.salt,
            caller=order.caller,
            usage=Usage(prompt_tokens=len(order.prompt.tokens)),
            seed=sampling.seed if sampling.temperature else None,
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
            reuse_enabled=order.reuse,
            history=order.history,
            tools=tools_digest(order.tools),
            prompt=array("I", order.prompt.tokens),
            spans=order.prompt.spans,
        )

    def open(self, request: Request, waiter: Waiter) -> None:
        """Begin the row of a turn that cannot be queued yet; ``queue`` or ``abandon`` follows."""
        self._waiters[request.record.turn_id] = waiter
        self.ledger.open(request.record)

    def queue(self, request: Request, waiter: Waiter, limited: bool = True) -> None:
        """Queue a planned request, and begin its row if that has not been done.

        Raises
        ------
        QueueFull, ModelUnloaded, EngineDied, EngineClosed
            It is not queued; a row that has begun is still open.
        """
        record = request.record
        opened = record.turn_id in self._waiters
        begin = _nothing if opened else lambda: self.ledger.open(record)
        self._waiters[record.turn_id] = waiter
        assert request.lane is not None, "a request is planned before it is queued"
        record.rewindable = request.lane.runtime.rewindable
        request.clock.queued = time.perf_counter()
        try:
            self.core.submit(request, limited, begin)
        except BaseException:
            if not opened:
                self._waiters.pop(record.turn_id, None)
            raise

    def abandon(self, request: Request, reason: FinishReason, error: Exception | None) -> None:
        """End a turn whose row has begun and which is not queued."""
        if request.begin_end():
            request.error = error
            self._ended(request, request.close_text(reason))
            request.finish(reason, error)

    # --- the end ------------------------------------------------------------------------------

    def _ended(self, request: Request, reason: FinishReason) -> None:
        """Fill in the row of a turn that has ended, and hand it to its waiter.

        Runs on the engine's thread (if that is gone, on another), before the client is told.
        """
        record = request.record
        self.ends[record.model] = time.monotonic()
        views.fill(record, request, reason, time.perf_counter())
        try:
            self._explain(record)
        except Exception:
            log.exception("turn %s was not compared with earlier ones", record.turn_id)
        self.ledger.close(record)
        self._waiters.pop(record.turn_id).ended(request)

    def _explain(self, record: TurnRecord) -> None:
        """Write down what reuse saved, and why it did not save more."""
        runtime = next((r for r in self.core.runtimes() if r.key == record.fingerprint), None)
        if runtime is None:
            return
        rate = runtime.rate.mean
        record.saved_s = record.usage.cached_tokens / rate if rate else None
        earlier = self.ledger.before(record.turn_id)
        found = diagnose(record, earlier, views.readable(runtime.tokenizer))
        record.miss_reason, record.diverged_at = found.reason, found.diverged_at


def _nothing() -> None:
    """The row has begun."""


def _turn_of(texts: Texts, request: Request) -> Turn:
    return views.turn_of(request, views.readable(texts.tokenizer))


def _session_order(
    session: LocalSession,
    prompt: Rendered,
    sampling: Sampling,
    source: Source,
    arrived: float,
    shape: Shape = Shape(),  # noqa: B008 - frozen
) -> Order:
    options = session.options
    return Order(
        prompt=prompt,
        sampling=sampling,
        source=source,
        arrived=arrived,
        session=session.name,
        owner=session.name,
        salt=options.cache_salt,
        reuse=options.reuse,
        history=options.history,
        tools=shape.shown(options.tools),
        form=shape.form(options.tools),
        thinking=options.thinking,
    )
