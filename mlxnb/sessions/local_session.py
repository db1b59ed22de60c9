"""A conversation whose tokens and KV are in this process."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import logging
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Sampling
from mlxnb.errors import InvalidOption, PendingToolCalls, SessionBusy
from mlxnb.records.tokens import pack
from mlxnb.records.turn import Source, Turn
from mlxnb.sessions.computed import Computed
from mlxnb.sessions.draft import Draft, anything, common_head
from mlxnb.sessions.exported import Exported
from mlxnb.sessions.exported_store import Kept
from mlxnb.sessions.history import History
from mlxnb.sessions.messages import Message
from mlxnb.sessions.options import Options, check_text, packed_tools
from mlxnb.sessions.order import tool_list
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.results import Results
from mlxnb.sessions.session import Session
from mlxnb.sessions.shape import Shape
from mlxnb.sessions.template import ChatTemplate, Rendered

if TYPE_CHECKING:
    from mlxnb.sessions.local import LocalEngine

log = logging.getLogger(__name__)


class LocalSession(Session):
    """A session of a `LocalEngine`."""

    def __init__(self, engine: LocalEngine, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self.created_at = self.last_used = dt.datetime.now(dt.UTC)
        self.forked_from: str | None = None
        self.last: Turn | None = None
        self._engine = engine
        self._busy = threading.Lock()
        self._key: str | None = None
        self._results = Results()
        self._history = self._beginning()
        self._state = threading.Lock()
        self.identity = secrets.token_hex(8)  # of its file, where it is kept
        self.kept: Kept | None = None
        self.computed = Computed()

    def _beginning(self) -> History:
        system = self.options.system
        return History(() if system is None else ({"role": "system", "content": system},))

    @property
    def history(self) -> list[Message]:
        """See `Session.history`."""
        return copy.deepcopy(list(self._history.messages))

    @property
    def tokens(self) -> list[int]:
        """See `Session.tokens`."""
        return list(self._history.line.tokens)

    @property
    def turns(self) -> int:
        """See `Session.turns`."""
        return self._history.turns

    @property
    def answering(self) -> bool:
        """See `Session.answering`."""
        return self._busy.locked()

    # --- turns --------------------------------------------------------------------------------

    def send_tool_result(self, call_id: str, content: Any, is_error: bool = False) -> Turn | None:
        """See `Session.send_tool_result`."""
        pending = self._history.pending
        self._results.add(pending, call_id, content, is_error)
        results = self._results.messages(pending)
        return None if results is None else self._reply(results, Sampling(), "python").result()

    def add_tool_result(self, call_id: str, content: Any, is_error: bool = False) -> None:
        """See `Session.add_tool_result`."""
        self._results.add(self._history.pending, call_id, content, is_error)

    def reply(
        self,
        text: str | None,
        source: Source = "python",
        schema: Any = None,
        tool_choice: str | None = None,
        **sampling: Any,
    ) -> Reply:
        """See `Session.reply`."""
        self.check_free()
        if text is not None:
            check_text("a message", text)
        wanted, shape = Sampling.of(sampling), Shape.of(schema, tool_choice)
        return self._reply(self._next(text), wanted, source, shape)

    def _next(self, text: str | None) -> list[Message]:
        """What is said next: results of tool calls, where some are due, and a text."""
        pending = self._history.pending
        results = self._results.messages(pending)
        if results is None:
            names = ", ".join(f"{n} ({i})" for i, n in pending.items())
            raise PendingToolCalls(f"send_tool_result is due for: {names}")
        if not results:
            check_text("a message", text)
        return results if text is None else [*results, {"role": "user", "content": text}]

    def _reply(
        self,
        new: list[Message],
        sampling: Sampling,
        source: Source,
        shape: Shape = Shape(),  # noqa: B008 - frozen
    ) -> Reply:
        self._take()
        after = self.last
        try:
            wanted = sampling.over(self.options.sampling)
            reply = self._engine.start(self, new, wanted, source, shape)
        except BaseException:
            self._busy.release()
            raise
        last = new[-1] if new else {}
        said = last["content"] if last.get("role") == "user" else None
        self._tell(said, after, reply, source)
        return reply

    def _take(self) -> None:
        self.check_free()
        if not self._busy.acquire(blocking=False):
            raise SessionBusy(f"the session {self.name!r} is answering; wait, or use another one")

    # --- what the engine asks -----------------------------------------------------------------

    def draft(
        self,
        new: list[Message],
        template: ChatTemplate,
        key: str,
        shape: Shape = Shape(),  # noqa: B008 - frozen
    ) -> Draft:
        """The next turn, for the model whose content is ``key``; see `Draft.of`."""
        history = self._history
        if self._key not in (None, key):
            history = history.without_tokens()
        return Draft.of(history, new, template, tool_list(shape.shown(self.options.tools)), key)

    def head(self, template: ChatTemplate, key: str, begins: str = "") -> Rendered:
        """What every next prompt begins with: the tokens that two different ones share."""
        said = (anything(self._history, begins + text) for text in ("Alpha", "zulu"))
        return common_head([self.draft(new, template, key) for new in said])

    def settle(self, draft: Draft, request: Request, turn: Turn) -> None:
        """Take an ended turn: a good one into the history, any other only as ``last``."""
        try:
            self.last, self.last_used = turn, dt.datetime.now(dt.UTC)
            if turn.ended_well:
                history = draft.settled(request, turn, self.options.history == "exact")
                self.go_on_from(history, draft.key, Results())
        except Exception:
            log.exception("turn %s was not taken into the history", turn.id)
        finally:
            self._busy.release()
            self._save()

    # --- the conversation as a whole ----------------------------------------------------------

    def fork(self, name: str | None = None) -> LocalSession:
        """See `Session.fork`."""
        other = self._engine.adopt(name, self.options, f"{self.name}-fork")
        other.go_on_from(self._history, self._key, self._results.copy())
        other.toolbox, other.forked_from = self.toolbox.copy(), self.name
        if self._key is not None:
            other.computed.add_line(self._key, pack(self.tokens))
        return other

    def rewind(self, turns: int = 1) -> None:
        """See `Session.rewind`."""
        if isinstance(turns, bool) or not isinstance(turns, int) or not 0 < turns <= self.turns:
            raise InvalidOption(
                f"turns of the session {self.name!r}: {self.turns}; {turns!r} cannot be taken back"
            )
        self._set_back(lambda: self._history.rewound(turns))

    def reset(self) -> None:
        """See `Session.reset`."""
        self._set_back(self._beginning)

    def _set_back(self, earlier: Callable[[], History]) -> None:
        self._take()
        try:
            self.go_on_from(earlier(), self._key, Results())
        finally:
            self._busy.release()
        self._save()

    def set_tools(self, tools: list[Any]) -> None:
        """See `Session.set_tools`."""
        packed = packed_tools(tools)
        self._take()
        try:
            if packed != self.options.tools:
                self.options = dataclasses.replace(self.options, tools=packed)
                self.go_on_from(self._history.without_tokens(), self._key, self._results)
        finally:
            self._busy.release()
        self._save()

    # --- elsewhere and later ------------------------------------------------------------------

    def go_on_from(self, history: History, key: str | None, results: Results) -> None:
        """Take this past in the place of the session's own.

        Parameters
        ----------
        key
            Names the content of the model that its tokens are of.
        results
            Of the tool calls that it ends in, as far as they are there.
        """
        with self._state:  # whoever writes it down sees all of it
            self._history, self._key, self._results = history, key, results

    def exported(self) -> Exported:
        """See `Session.exported`."""
        with self._state:
            state = self._history, self._key, self._results.given
        return Exported.of(self.identity, self.name, self.options, *state)

    def keep(self) -> None:
        """See `Session.keep`."""
        if self.kept is None:
            self.kept = Kept(self.name, self.identity, self.exported)
        else:  # raises where that cannot be
            self.kept.write()

    def _save(self) -> None:
        if self.kept is not None:
            self.kept.save()
