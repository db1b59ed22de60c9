"""The engine of this very process."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxnb.engine.core import Core
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime
from mlxnb.engine.sampling import Sampling
from mlxnb.errors import ContextOverflow, InvalidOption, NothingLoaded, SessionExists, UnknownSession
from mlxnb.models.generation import generation_defaults
from mlxnb.models.memory import check_memory
from mlxnb.models.resolve import resolve
from mlxnb.records.diagnosis import diagnose
from mlxnb.records.explain import Explanation, explain
from mlxnb.records.ledger import Ledger
from mlxnb.records.turn import FinishReason, Source, Turn, TurnRecord, Usage
from mlxnb.sessions import views
from mlxnb.sessions.engine import Engine
from mlxnb.sessions.loading import loading_bar
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.session import Options, Session
from mlxnb.sessions.template import ChatTemplate, Message, Rendered
from mlxnb.text.answer import AnswerMachine

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.models.info import ModelInfo


class LocalEngine(Engine):
    """Models, sessions and turns of this process.

    Parameters
    ----------
    budget
        Bytes for KV; None: chosen from the machine's memory.
    **core
        For `mlxnb.engine.core.Core`.
    """

    def __init__(self, budget: int | None = None, **core: Any) -> None:
        self.host = f"kernel-{os.getpid()}"
        self.ledger = Ledger()
        self.core = Core(self._ended, budget, **core)
        self._sessions: dict[str, Session] = {}
        self._templates: dict[tuple[str, bool | None], ChatTemplate] = {}
        self._defaults: dict[str, Sampling] = {}
        self._numbers = itertools.count(1)

    # --- models -------------------------------------------------------------------------------

    def load(
        self, name: str | Path, adapter: str | Path | None = None, progress: bool = True
    ) -> ModelInfo:
        """See `Engine.load`."""
        source = resolve(str(name), adapter=adapter, progress=progress)
        if not self._is_loaded(source.name):
            check_memory(source)
        with loading_bar(source.name, progress) as show:
            runtime = self.core.load(source, show)
        self._defaults[source.name] = Sampling.of(generation_defaults(source))
        return views.model_info(runtime)

    def _is_loaded(self, name: str) -> bool:
        return any(r.info.name == name for r in self.core.runtimes())

    def unload(self, name: str) -> None:
        """See `Engine.unload`."""
        self.core.unload(name)
        self._templates.clear()

    def _model(self, name: str | None) -> Runtime:
        if name is not None:
            return self.core.runtime(str(name))
        loaded = self.core.names()
        if not loaded:
            raise NothingLoaded("no model is loaded; load one first, such as the demo model: demo")
        return self.core.runtime(loaded[-1])

    # --- sessions -----------------------------------------------------------------------------

    def session(
        self,
        model: str | None = None,
        system: str | None = None,
        name: str | None = None,
        tools: list[Any] | None = None,
        **options: Any,
    ) -> Session:
        """See `Engine.session`."""
        if model is None and name in self._sessions:
            model = self._sessions[name].model
        made = _options(self._model(model).info.name, system, tools, options)
        there = self._sessions.get(name) if name is not None else None
        if there is None:
            return self.adopt(name or self.free_name("session"), made)
        if there.options != made:
            raise SessionExists(
                f"the session {name!r} exists with other options ({_differences(there.options, made)}); "
                "use another name, or remove it first"
            )
        return there

    def adopt(self, name: str, options: Options) -> Session:
        """A new session of that name.

        Raises
        ------
        SessionExists
            The name is taken.
        """
        if name in self._sessions:
            raise SessionExists(f"a session {name!r} exists already")
        self._sessions[name] = Session(self, name, options)
        return self._sessions[name]

    def free_name(self, stem: str) -> str:
        """A name that no session has yet."""
        names = (f"{stem}-{n}" for n in itertools.count(1))
        return next(name for name in names if name not in self._sessions)

    def find_session(self, name: str) -> Session:
        """The session of that name.

        Raises
        ------
        UnknownSession
            There is none.
        """
        if name not in self._sessions:
            there = ", ".join(self._sessions) or "none"
            raise UnknownSession(f"no session {name!r} (there are: {there})")
        return self._sessions[name]

    def remove_session(self, name: str) -> None:
        """Forget a session; its KV may be reused by others until it is evicted."""
        self.find_session(name)
        del self._sessions[name]
        self.core.store.disown(name)

    def template(self, session: Session) -> ChatTemplate:
        """The chat template of a session's model."""
        runtime, thinking = self.core.runtime(session.model), session.options.thinking
        key = (runtime.key, thinking)
        if key not in self._templates:
            extra = {} if thinking is None else {"enable_thinking": thinking}
            self._templates[key] = ChatTemplate(runtime.tokenizer, extra)
        return self._templates[key]

    # --- turns --------------------------------------------------------------------------------

    def start(
        self, session: Session, new: list[Message], sampling: Sampling, source: Source
    ) -> Reply:
        """Render, check, plan and queue a session's next turn."""
        arrived = time.perf_counter()
        runtime = self.core.runtime(session.model)
        prompt = session.render(new, self.template(session), runtime.key, runtime.end_tokens)
        settled = self._settled(runtime, sampling, len(prompt.tokens))
        requests = [
            self._request(runtime, session, prompt, settled, source, arrived, n)
            for n in range(settled.n or 1)
        ]
        for request in requests:
            self._queue(request, limited=request is requests[0])
        first, others = requests[0], requests[1:]

        def settle(request: Request) -> Turn:
            turn = views.turn_of(request)
            turn.choices = [turn, *(self._choice(other) for other in others)] if others else []
            session.settle(new, prompt, request, turn)
            return turn

        return Reply(first, self.core.check, settle, others)

    def warm_session(self, session: Session) -> Turn:
        """Compute the KV of all that a session's next prompt begins with, whatever it says."""
        arrived = time.perf_counter()
        runtime = self.core.runtime(session.model)
        head = session.head(self.template(session), runtime.key, runtime.end_tokens)
        settled = self._settled(runtime, Sampling(), len(head.tokens))
        request = self._request(runtime, session, head, settled, "python", arrived, 0)
        request.prefill_only = True
        self._queue(request, limited=True)
        return Reply(request, self.core.check, views.turn_of).result()

    def _choice(self, request: Request) -> Turn:
        return Reply(request, self.core.check, views.turn_of).outcome()

    def _settled(self, runtime: Runtime, sampling: Sampling, prompt: int) -> Sampling:
        """Sampling with nothing open, its output clamped to what the context window leaves."""
        limit = runtime.info.context_length or 2**31
        if prompt >= limit:
            raise ContextOverflow(prompt, limit)
        full = sampling.over(self._defaults.get(runtime.info.name, Sampling())).settled()
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
        seed = ((sampling.seed or 0) + number) % 2**64
        own = Sampling(seed=seed).over(sampling)
        options = session.options
        request = Request(
            model=runtime.info.name,
            prompt=prompt.tokens,
            sampling=own,
            record=self._record(runtime, session, prompt, own, source),
            machine=_machine(runtime, prompt.opens_reasoning, options.tool_list(), own.stop or ()),
            detokenizer=runtime.tokenizer.detokenizer,
            end_tokens=runtime.end_tokens,
            salt=options.cache_salt,
            owner=session.name if number == 0 else f"{session.name}#{number}",
            reuse=options.reuse,
        )
        request.clock.arrived = arrived
        request.clock.validated = time.perf_counter()
        return request

    def _record(
        self, runtime: Runtime, session: Session, prompt: Rendered, sampling: Sampling, source: Source
    ) -> TurnRecord:
        options = session.options
        return TurnRecord(
            turn_id=self.ledger.new_id(),
            session=session.name,
            model=runtime.info.name,
            source=source,
            host=self.host,
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
            prompt=array("I", prompt.tokens),
            spans=prompt.spans,
        )

    def _queue(self, request: Request, limited: bool) -> None:
        self.core.plan(request)
        request.clock.queued = time.perf_counter()
        self.core.submit(request, limited, lambda: self.ledger.open(request.record))

    def _ended(self, request: Request, reason: FinishReason) -> None:
        """Fill in the row of a turn that has ended; runs on the engine's thread."""
        record = request.record
        views.fill(record, request, reason, time.perf_counter())
        runtime = next((r for r in self.core.runtimes() if r.key == record.fingerprint), None)
        if runtime is not None:
            rate = runtime.rate.mean
            record.saved_s = record.usage.cached_tokens / rate if rate else None
            earlier = self.ledger.before(record.turn_id)
            found = diagnose(record, earlier, runtime.tokenizer.decode)
            record.miss_reason, record.diverged_at = found.reason, found.diverged_at
        self.ledger.close(record)

    # --- looking ------------------------------------------------------------------------------

    def turns(self, wide: bool = False) -> pd.DataFrame:
        """See `Engine.turns`."""
        from mlxnb.records.frames import turns_frame

        return turns_frame(self.ledger, wide)

    def prefix_cache(self) -> pd.DataFrame:
        """See `Engine.prefix_cache`."""
        from mlxnb.records.frames import prefix_frame

        return prefix_frame(views.block_rows(self.core))

    def sessions(self) -> pd.DataFrame:
        """See `Engine.sessions`."""
        from mlxnb.records.frames import sessions_frame

        return sessions_frame(views.session_rows(self.core, self._sessions.values()))

    def models(self) -> pd.DataFrame:
        """See `Engine.models`."""
        from mlxnb.records.frames import models_frame

        return models_frame(views.all_models(self.core))

    def explain(self, turn: Turn | str | None = None, show_text: bool = True) -> Explanation:
        """See `Engine.explain`."""
        if turn is None:
            record = self.ledger.last()
        else:
            record = self.ledger[turn.id if isinstance(turn, Turn) else turn]
        decode = views.decoder(self.core, record.fingerprint)
        show = show_text and record.source in ("magic", "widget", "python")
        return explain(record, self.ledger.before(record.turn_id), decode, show_text=show)

    def warm(self, what: str | Session, model: str | None = None) -> Turn:
        """See `Engine.warm`."""
        session = what if isinstance(what, Session) else self._warm_session(what, model)
        try:
            return self.warm_session(session)
        finally:
            if session is not what:
                self.remove_session(session.name)

    def _warm_session(self, system: str, model: str | None) -> Session:
        return self.session(model, system=system, name=self.free_name("warm"))

    def pin(self, block_id: str, pinned: bool = True) -> None:
        """See `Engine.pin`."""
        self.core.store.pin(block_id, pinned)

    @property
    def budget(self) -> int:
        """See `Engine.budget`."""
        return self.core.budget

    @budget.setter
    def budget(self, value: int) -> None:
        if not isinstance(value, int) or value < 2**20:
            raise InvalidOption(f"budget is a number of bytes, 1 MiB or more, not {value!r}")
        self.core.budget = value

    def close(self) -> None:
        """See `Engine.close`."""
        self.core.stop()


def _options(
    model: str, system: str | None, tools: list[Any] | None, options: dict[str, Any]
) -> Options:
    own = {k: options.pop(k) for k in ("history", "reuse", "cache_salt", "thinking") if k in options}
    if own.get("history", "exact") not in ("exact", "template"):
        raise InvalidOption(f"history is 'exact' or 'template', not {own['history']!r}")
    if not isinstance(own.get("reuse", True), bool):
        raise InvalidOption(f"reuse is True or False, not {own['reuse']!r}")
    packed = tuple(json.dumps(tool, sort_keys=True) for tool in tools or ())
    return Options(model, system, packed, Sampling.of(options), **own)


def _differences(a: Options, b: Options) -> str:
    """The options that differ, without their values (a system text may be long)."""
    names = ("model", "system", "tools", "sampling", "history", "reuse", "cache_salt", "thinking")
    return ", ".join(name for name in names if getattr(a, name) != getattr(b, name))


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
