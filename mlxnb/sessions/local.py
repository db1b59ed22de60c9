"""The engine of this very process."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxnb.engine.runtime import Runtime
from mlxnb.engine.sampling import Sampling
from mlxnb.errors import (
    InvalidOption,
    NotEnoughMemory,
    NothingLoaded,
    SessionBusy,
    SessionExists,
    UnknownSession,
)
from mlxnb.models.memory import check_memory
from mlxnb.models.resolve import canonical_name, resolve
from mlxnb.models.source import ModelSource
from mlxnb.records.explain import Explanation, explain
from mlxnb.records.turn import Source, Turn, TurnRecord, shows_text
from mlxnb.sessions import views
from mlxnb.sessions.engine import Engine
from mlxnb.sessions.exported import Exported
from mlxnb.sessions.exported_store import find_kept, forget_kept, is_kept
from mlxnb.sessions.loading import Progress, loading_bar
from mlxnb.sessions.local_session import LocalSession
from mlxnb.sessions.messages import Message
from mlxnb.sessions.options import Options, Wanted, check_text, checked_budget
from mlxnb.sessions.registry import Registry
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.results import Results
from mlxnb.sessions.session import Session
from mlxnb.sessions.shape import Shape
from mlxnb.sessions.template import ChatTemplate
from mlxnb.sessions.texts import Texts
from mlxnb.sessions.turns import Turns
from mlxnb.sessions.wishes import wishes

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.models.info import ModelInfo


class LocalEngine(Engine):
    """Models, sessions and turns of this process.

    Parameters
    ----------
    budget
        Bytes for KV; None: chosen from the machine's memory.
    host
        What the turns' rows name as their host; None: this kernel.
    **core
        For `mlxnb.engine.core.Core`.

    Attributes
    ----------
    runner
        Starts turns, for sessions and for doors of other kinds.
    """

    def __init__(self, budget: int | None = None, host: str | None = None, **core: Any) -> None:
        self.runner = Turns(host or f"kernel-{os.getpid()}", budget, **core)
        self.core, self.ledger = self.runner.core, self.runner.ledger
        self._sessions = Registry()
        self._texts: dict[str, Texts] = {}
        self._newest = ""
        self.served: Any = None  # what publishes this engine as a host, where something does

    # --- models -------------------------------------------------------------------------------

    def load(
        self,
        name: str | Path,
        adapter: str | Path | None = None,
        progress: bool = True,
        kv_bits: int | None = None,
    ) -> ModelInfo:
        """See `Engine.load`."""
        source = resolve(name, adapter=adapter, progress=progress, kv_bits=kv_bits)
        return self.load_source(source, progress)

    def load_source(self, source: ModelSource, progress: bool | Progress = True) -> ModelInfo:
        """Load a model that has been found; it is the one that new sessions get."""
        with loading_bar(source.name, progress) as show:
            runtime = self.take_in(source, show)
        self._newest = source.name
        return views.model_info(runtime)

    def take_in(self, source: ModelSource, show: Progress | None = None) -> Runtime:
        """Load a model that has been found; ``show`` is told bytes done and in all.

        Raises
        ------
        ModelBroken, UnsupportedModel, NotEnoughMemory
            Nothing has changed then.
        """
        if source.name not in self.core.names():
            self._make_room(source)
        runtime = self.core.load(source, show)
        self._texts[source.name] = Texts.of_runtime(runtime, wishes(source))
        return runtime

    def _make_room(self, source: ModelSource) -> None:
        """See that a model's weights fit; KV that nobody uses goes for them, if that helps."""
        try:
            check_memory(source, self.core.spare_bytes)
        except NotEnoughMemory as error:
            check_memory(source, self.core.make_room(error.needed))

    def unload(self, name: str) -> None:
        """See `Engine.unload`."""
        known = canonical_name(name)
        self.core.unload(known)
        self._texts.pop(known, None)

    def _model(self, name: str | None) -> str:
        """The full name of a loaded model; None: the one loaded last."""
        wanted = self._default() if name is None else canonical_name(name)
        try:
            return self.core.runtime(wanted).info.name
        except NothingLoaded as error:
            if name is None or self._sessions.get(name) is None:
                raise
            hint = f"a session has that name: session(name={name!r})"
            raise NothingLoaded(f"{error} ({hint})") from None

    def _default(self) -> str:
        loaded = self.core.names()
        if not loaded and not self.closed:
            raise NothingLoaded("no model is loaded; load one first, such as the demo model: demo")
        return loaded[-1] if loaded and self._newest not in loaded else self._newest

    # --- sessions -----------------------------------------------------------------------------

    def session(
        self,
        model: str | None = None,
        system: str | None = None,
        name: str | None = None,
        tools: list[Any] | None = None,
        **options: Any,
    ) -> LocalSession:
        """See `Engine.session`."""
        wanted = Wanted.of(system, tools, options)
        there = self._sessions.get(name) if isinstance(name, str) else None
        if there is None:
            return self.adopt(name, wanted.options(self._model(model)), "session")
        differing = wanted.disagreeing(there.options)
        if model is not None and canonical_name(model) != there.model:
            differing.insert(0, "model")
        if differing:
            raise SessionExists(
                f"the session {name!r} exists with other options ({', '.join(differing)}); use "
                "another name, or remove it first"
            )
        return there

    def adopt(self, name: str | None, options: Options, stem: str) -> LocalSession:
        """A new session; without a name it gets one from ``stem``.

        Raises
        ------
        SessionExists
            The name is taken.
        """
        return self._sessions.add(name, stem, lambda own: LocalSession(self, own, options))

    def find_session(self, name: str) -> LocalSession:
        """See `Engine.find_session`."""
        return self._sessions.find(name)

    def all_sessions(self) -> list[LocalSession]:
        """The sessions, in order of their making."""
        return list(self._sessions)

    def take_in_session(
        self, exported: Exported, name: str | None, model: str | None
    ) -> tuple[LocalSession, str | None]:
        """See `Engine.take_in_session`."""
        own = self._model(model or exported.options.model)
        texts = self.texts(self.core.runtime(own))
        if exported.key == texts.key and max(exported.tokens, default=0) >= texts.vocab:
            raise InvalidOption("the exported session has tokens that its model does not have")
        options = dataclasses.replace(exported.options, model=own)
        session = self.adopt(name or exported.name, options, "session")
        lost = exported.key not in (None, texts.key)
        history = exported.history.without_tokens() if lost else exported.history
        session.go_on_from(history, texts.key, Results(exported.given))
        note = f"the session {session.name!r} was exported from another model than {own!r} is now"
        return session, f"{note}: its tokens are rendered anew" if lost else None

    def take_kept_session(
        self, name: str | None, whose: Callable[[str], bool] = lambda name: True
    ) -> tuple[LocalSession, str | None]:
        """See `Engine.take_kept_session`; ``whose``: the names that may be seen."""
        there = None if name is None else self._sessions.get(name)
        if there is not None and (there.kept is not None or not is_kept(there.name)):
            return there, None
        exported = find_kept(name, whose)
        there = self._sessions.get(exported.name)
        if there is not None and there.identity != exported.id:
            raise SessionExists(
                f"another session {there.name!r} is here than the one that is kept; remove it "
                "first, without --forget (it can be forked under another name before)"
            )
        if there is not None:
            return there, None
        session, note = self.take_in_session(exported, None, None)
        session.identity = exported.id
        session.keep()
        return session, note

    def remove_session(self, name: str, forget: bool = False) -> None:
        """See `Engine.remove_session`."""
        if forget and self._sessions.get(name) is None and forget_kept(name):
            return
        session = self._sessions.find(name)
        session.check_free()
        if session.answering:
            raise SessionBusy(f"the session {name!r} is answering; stop it first")
        self._sessions.remove(name)
        self.core.store.disown(name)
        if forget:
            if session.kept is not None:
                session.kept.forget()
            self.ledger.forget(name, session.created_at)
            salt = session.options.cache_salt
            others = [each for each in self._sessions if each.options.cache_salt == salt]
            for key, line in session.computed:
                kept = max((each.computed.shared(key, line) for each in others), default=0)
                self.core.forget(key, salt, line, kept)

    def texts(self, runtime: Runtime) -> Texts:
        """What prompts and answers of a loaded model need of it."""
        known = self._texts.get(runtime.info.name)
        if known is None or known.key != runtime.key:  # it was taken in without being found
            known = self._texts[runtime.info.name] = Texts.of_runtime(runtime, Sampling())
        return known

    # --- turns --------------------------------------------------------------------------------

    def start(
        self,
        session: LocalSession,
        new: list[Message],
        sampling: Sampling,
        source: Source,
        shape: Shape,
    ) -> Reply:
        """Start a session's next turn.

        Raises
        ------
        UnknownSession
            The session was removed.
        BadSchema, ContextOverflow, InvalidOption, QueueFull, TemplateFailed
            Nothing was touched.
        """
        arrived = time.perf_counter()
        texts, template = self._ready(session)
        draft = session.draft(new, template, texts.key, shape)
        return self.runner.start(texts, session, draft, sampling, source, arrived, shape)

    def _ready(self, session: LocalSession) -> tuple[Texts, ChatTemplate]:
        """What a session's prompts need of its model, and its template."""
        if self._sessions.get(session.name) is not session:
            raise UnknownSession(f"the session {session.name!r} was removed")
        texts = self.texts(self.core.runtime(session.model))
        return texts, texts.template(session.options.thinking)

    def warm(
        self,
        what: str | Session,
        model: str | None = None,
        source: Source = "python",
        begins: str = "",
    ) -> Turn:
        """See `Engine.warm`."""
        check_text("begins", begins)
        if isinstance(what, LocalSession):
            return self._warm(what, source, begins)
        if isinstance(what, Session):
            raise InvalidOption(f"the session {what.name!r} belongs to another engine")
        session = self.adopt(None, Wanted.of(what, None, {}).options(self._model(model)), "warm")
        try:
            return self._warm(session, source, begins)
        finally:
            self.remove_session(session.name)

    def _warm(self, session: LocalSession, source: Source, begins: str) -> Turn:
        arrived = time.perf_counter()
        texts, template = self._ready(session)
        head = session.head(template, texts.key, begins)
        return self.runner.warm(texts, session, head, source, arrived).result()

    # --- looking ------------------------------------------------------------------------------

    def turns(self, wide: bool = False) -> pd.DataFrame:
        """See `Engine.turns`."""
        from mlxnb.records.frames import turns_frame

        return turns_frame(self.ledger, wide)

    def prefix_cache(self, show_text: bool | None = None, wide: bool = False) -> pd.DataFrame:
        """See `Engine.prefix_cache`."""
        from mlxnb.records.frames import prefix_frame

        rows = views.block_rows(self.core, lambda: shows_text(show_text, self.ledger))
        return prefix_frame(rows, wide)

    def tokens(self, turn: Turn | str | None = None, show_text: bool | None = None) -> pd.DataFrame:
        """See `Engine.tokens`."""
        from mlxnb.records.token_row import token_rows, tokens_frame

        record = self._record(turn)
        decode = views.decoder(self.core, record.fingerprint)
        return tokens_frame(token_rows(record, decode, shows_text(show_text, [record])))

    def timeline(self, turn: Turn | str | None = None) -> pd.DataFrame:
        """See `Engine.timeline`."""
        from mlxnb.records.phase_row import phase_rows, timeline_frame

        return timeline_frame(phase_rows(self._record(turn)))

    def _record(self, turn: Turn | str | None) -> TurnRecord:
        if turn is None:
            return self.ledger.last()
        return self.ledger[turn.id if isinstance(turn, Turn) else str(turn)]

    def sessions(self) -> pd.DataFrame:
        """See `Engine.sessions`."""
        from mlxnb.records.frames import sessions_frame

        return sessions_frame(views.session_rows(self.core, self._sessions))

    def models(self) -> pd.DataFrame:
        """See `Engine.models`."""
        from mlxnb.records.frames import models_frame

        return models_frame(views.all_models(self.core))

    def memory(self) -> pd.DataFrame:
        """See `Engine.memory`."""
        from mlxnb.records.frames import memory_frame

        return memory_frame([self.core.memory()])

    def explain(self, turn: Turn | str | None = None, show_text: bool | None = None) -> Explanation:
        """See `Engine.explain`."""
        record = self._record(turn)
        decode = views.decoder(self.core, record.fingerprint)
        show = shows_text(show_text, [record])
        return explain(record, self.ledger.before(record.turn_id), decode, show_text=show)

    # --- the prefix cache ---------------------------------------------------------------------

    def pin(self, block_id: str, pinned: bool = True) -> None:
        """See `Engine.pin`."""
        self.core.store.hand.pin(block_id, pinned)

    def evict(self, block_id: str) -> None:
        """See `Engine.evict`."""
        self.core.evict(block_id)

    @property
    def budget(self) -> int:
        """See `Engine.budget`."""
        return self.core.budget

    @budget.setter
    def budget(self, value: int) -> None:
        self.core.budget = checked_budget(value)

    def close(self) -> None:
        """See `Engine.close`."""
        self.core.stop()

    @property
    def closed(self) -> bool:
        """See `Engine.closed`."""
        return self.core.closed
