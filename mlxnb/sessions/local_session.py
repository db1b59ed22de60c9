"""A conversation whose tokens and KV are in this process."""

from __future__ import annotations

import copy
import datetime as dt
import logging
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
from mlxnb.sessions.history import History
from mlxnb.sessions.messages import Message
from mlxnb.sessions.options import Options, check_text
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.results import Results
from mlxnb.sessions.session import Session
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

    def reply(self, text: str, source: Source = "python", **sampling: Any) -> Reply:
        """See `Session.reply`."""
        check_text("a message", text)
        wanted = Sampling.of(sampling)
        if self._history.pending:
            names = ", ".join(f"{n} ({i})" for i, n in self._history.pending.items())
            raise PendingToolCalls(f"send_tool_result is due for: {names}")
        return self._reply([{"role": "user", "content": text}], wanted, source)

    def _reply(self, new: list[Message], sampling: Sampling, source: Source) -> Reply:
        self._take()
        try:
            return self._engine.start(self, new, sampling.over(self.options.sampling), source)
        except BaseException:
            self._busy.release()
            raise

    def _take(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise SessionBusy(f"the session {self.name!r} is answering; wait, or use another one")

    # --- what the engine asks -----------------------------------------------------------------

    def draft(self, new: list[Message], template: ChatTemplate, key: str) -> Draft:
        """The next turn, for the model whose content is ``key``; see `Draft.of`."""
        history = self._history
        if self._key not in (None, key):
            history = history.without_tokens()
        return Draft.of(history, new, template, self.options.tool_list, key)

    def head(self, template: ChatTemplate, key: str) -> Rendered:
        """What every next prompt begins with: the tokens that two different ones share."""
        said = (anything(self._history, text) for text in ("Alpha", "zulu"))
        return common_head([self.draft(new, template, key) for new in said])

    def settle(self, draft: Draft, request: Request, turn: Turn) -> None:
        """Take an ended turn: a good one into the history, any other only as ``last``."""
        try:
            self.last, self.last_used = turn, dt.datetime.now(dt.UTC)
            if turn.finish_reason not in ("cancelled", "error"):
                self._history = draft.settled(request, turn, self.options.history == "exact")
                self._key, self._results = draft.key, Results()
        except Exception:
            log.exception("turn %s was not taken into the history", turn.id)
        finally:
            self._busy.release()

    # --- the conversation as a whole ----------------------------------------------------------

    def fork(self, name: str | None = None) -> LocalSession:
        """See `Session.fork`."""
        other = self._engine.adopt(name, self.options, f"{self.name}-fork")
        other._history, other._key = self._history, self._key
        other._results, other.forked_from = self._results.copy(), self.name
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
            self._history, self._results = earlier(), Results()
        finally:
            self._busy.release()
