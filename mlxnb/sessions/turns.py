"""Turns from their start to their row: messages to queued requests, ended requests to turns."""

from __future__ import annotations

import datetime as dt
import logging
import time
from array import array
from collections.abc import Callable
from typing import Any

from mlxnb.engine.core import Core
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime
from mlxnb.engine.sampling import Sampling
from mlxnb.errors import ContextOverflow, InvalidOption
from mlxnb.records.diagnosis import diagnose
from mlxnb.records.ledger import Ledger
from mlxnb.records.turn import FinishReason, Source, Turn, TurnRecord, Usage
from mlxnb.sessions import views
from mlxnb.sessions.draft import Draft
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.session import Session
from mlxnb.sessions.template import Rendered
from mlxnb.text.answer import AnswerMachine

log = logging.getLogger(__name__)

UNBOUNDED = 2**31
"""Tokens that fit a model which does not say how many do."""


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
    wishes
        How each model's makers want it to be sampled, by the model's name.
    """

    def __init__(self, host: str, budget: int | None, **core: Any) -> None:
        self.ledger = Ledger()
        self.core = Core(self._ended, budget, **core)
        self.wishes: dict[str, Sampling] = {}
        self._host = host
        self._replies: dict[str, Reply] = {}

    # --- the start ----------------------------------------------------------------------------

    def start(
        self,
        runtime: Runtime,
        session: Session,
        draft: Draft,
        sampling: Sampling,
        source: Source,
        arrived: float,
    ) -> Reply:
        """Check, plan and queue a session's next turn.

        Raises
        ------
        ContextOverflow, InvalidOption, QueueFull
            Nothing was touched.
        """
        settled = self._settled(runtime, sampling, len(draft.prompt.tokens))
        requests = [
            self._request(runtime, session, draft.prompt, settled, source, arrived, number)
            for number in range(settled.n or 1)
        ]

        def settle() -> Turn:
            turn, *others = map(views.turn_of, requests)
            turn.choices = [turn, *others] if others else []
            session.settle(draft, requests[0], turn)
            return turn

        return self._queued(requests, settle)

    def warm(
        self, runtime: Runtime, session: Session, head: Rendered, source: Source, arrived: float
    ) -> Reply:
        """Queue the computation of the KV of a head.

        Raises
        ------
        ContextOverflow, InvalidOption, QueueFull
            Nothing was touched.
        """
        if not head.tokens:
            raise InvalidOption("there is nothing to warm: no two prompts begin alike")
        settled = self._settled(runtime, Sampling(), len(head.tokens))
        request = self._request(runtime, session, head, settled, source, arrived, 0)
        request.prefill_only = True
        return self._queued([request], lambda: views.turn_of(request))

    def _settled(self, runtime: Runtime, sampling: Sampling, prompt: int) -> Sampling:
        """Sampling with nothing open, its output clamped to what the context window leaves."""
        limit = runtime.info.context_length or UNBOUNDED
        if prompt >= limit:
            raise ContextOverflow(prompt, limit)
        wrong = [t for t in sampling.logit_bias or () if not 0 <= t < runtime.vocab]
        if wrong:
            raise InvalidOption(f"logit_bias: the model has no token {wrong[0]}")
        full = sampling.over(self.wishes.get(runtime.info.name, Sampling())).settled()
        return Sampling(max_tokens=min(full.max_tokens or limit, limit - prompt)).over(full)

    def _request(
        self,
        runtime: Runtime,
        session: Session,
        prompt: Rendered,
        sampling: Sampling,
        source: Source,
        arrived: float,
        number: int,
    ) -> Request:
        """Sample ``number`` of a turn; each has a seed of its own."""
        options = session.options
        own = Sampling(seed=((sampling.seed or 0) + number) % 2**64).over(sampling)
        request = Request(
            model=runtime.info.name,
            prompt=prompt.tokens,
            sampling=own,
            record=self._record(runtime, session, prompt, own, source),
            machine=_machine(runtime, prompt.opens_reasoning, options.tool_list, own.stop or ()),
            detokenizer=runtime.tokenizer.detokenizer,
            end_tokens=runtime.end_tokens,
            salt=options.cache_salt,
            owner=f"{session.name}#{number}" if number else session.name,
            reuse=options.reuse,
        )
        request.clock.arrived, request.clock.validated = arrived, time.perf_counter()
        return request

    def _record(
        self,
        runtime: Runtime,
        session: Session,
        prompt: Rendered,
        sampling: Sampling,
        source: Source,
    ) -> TurnRecord:
        options = session.options
        return TurnRecord(
            turn_id=self.ledger.new_id(),
            session=session.name,
            model=runtime.info.name,
            source=source,
            host=self._host,
            started_at=dt.datetime.now(dt.UTC),
            fingerprint=runtime.key,
            salt=options.cache_salt,
            usage=Usage(prompt_tokens=len(prompt.tokens)),
            seed=sampling.seed if sampling.temperature else None,
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
            reuse_enabled=options.reuse,
            rewindable=runtime.rewindable,
            history=options.history,
            tools=options.tools_digest,
            prompt=array("I", prompt.tokens),
            spans=prompt.spans,
        )

    def _queued(self, requests: list[Request], settle: Callable[[], Turn]) -> Reply:
        """Queue the requests of one reply: all of them, or none."""
        reply = Reply(requests, self.core.check, settle)
        try:
            for request in requests:
                self._queue(request, reply, limited=request is requests[0])
        except BaseException:
            reply.cancel()
            raise
        return reply

    def _queue(self, request: Request, reply: Reply, limited: bool) -> None:
        record = request.record
        self.core.plan(request)
        request.clock.queued = time.perf_counter()
        self._replies[record.turn_id] = reply
        try:
            self.core.submit(request, limited, lambda: self.ledger.open(record))
        except BaseException:
            self._replies.pop(record.turn_id, None)
            raise

    # --- the end ------------------------------------------------------------------------------

    def _ended(self, request: Request, reason: FinishReason) -> None:
        """Fill in the row of a turn that has ended, and hand it to its reply.

        Runs on the engine's thread (if that is gone, on another), before the waiter is told.
        """
        record = request.record
        views.fill(record, request, reason, time.perf_counter())
        try:
            self._explain(record)
        except Exception:
            log.exception("turn %s was not compared with earlier ones", record.turn_id)
        self.ledger.close(record)
        self._replies.pop(record.turn_id).ended(request)

    def _explain(self, record: TurnRecord) -> None:
        """Write down what reuse saved, and why it did not save more."""
        runtime = next((r for r in self.core.runtimes() if r.key == record.fingerprint), None)
        if runtime is None:
            return
        rate = runtime.rate.mean
        record.saved_s = record.usage.cached_tokens / rate if rate else None
        earlier = self.ledger.before(record.turn_id)
        found = diagnose(record, earlier, runtime.tokenizer.decode)
        record.miss_reason, record.diverged_at = found.reason, found.diverged_at


def _machine(
    runtime: Runtime, opens_reasoning: bool, tools: list[Any] | None, stops: tuple[str, ...]
) -> AnswerMachine:
    tokenizer = runtime.tokenizer
    thinks = (tokenizer.think_start, tokenizer.think_end) if tokenizer.has_thinking else None
    calls = tokenizer.has_tool_calling
    return AnswerMachine(
        think=thinks,
        starts_in_reasoning=opens_reasoning and thinks is not None,
        tool_tags=(tokenizer.tool_call_start, tokenizer.tool_call_end or "") if calls else None,
        parse_tool=tokenizer.tool_parser if calls else None,
        tools=tools,
        stops=stops,
        markers=tokenizer.structural_markers,
    )
