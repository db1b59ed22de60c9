"""A conversation that owns its token history."""

from __future__ import annotations

import copy
import datetime as dt
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Sampling
from mlxnb.errors import InvalidOption, PendingToolCalls, SessionBusy
from mlxnb.records.turn import Source, Turn
from mlxnb.sessions.delta import Delta
from mlxnb.sessions.draft import Draft, anything, common_head
from mlxnb.sessions.follow import follow
from mlxnb.sessions.history import History
from mlxnb.sessions.messages import Message
from mlxnb.sessions.options import Options, check_text
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.results import Results
from mlxnb.sessions.stream import Stream
from mlxnb.sessions.template import ChatTemplate, Rendered

if TYPE_CHECKING:
    from mlxnb.sessions.local import LocalEngine

log = logging.getLogger(__name__)


class Session:
    """A conversation with one model. Made by ``engine().session(...)``.

    One turn at a time; ``send`` and its kin may be called from any thread.

    Attributes
    ----------
    last
        The turn that ended last, be it a cancelled or failed one.
    """

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

    def _beginning(self) -> History:
        system = self.options.system
        return History(() if system is None else ({"role": "system", "content": system},))

    def __repr__(self) -> str:
        return f"Session({self.name!r}, model={self.model!r}, turns={self.turns})"

    @property
    def model(self) -> str:
        """The name of its model."""
        return self.options.model

    @property
    def history(self) -> list[Message]:
        """The messages of the turns that ended well, in the chat template's form; a copy."""
        return copy.deepcopy(list(self._history.messages))

    @property
    def tokens(self) -> list[int]:
        """The tokens that the next prompt begins with; empty with template history."""
        return list(self._history.line.tokens)

    @property
    def turns(self) -> int:
        """Turns that ended well."""
        return self._history.turns

    @property
    def answering(self) -> bool:
        """Whether a turn is running."""
        return self._busy.locked()

    # --- turns --------------------------------------------------------------------------------

    def send(self, text: str, **sampling: Any) -> Turn:
        """Say something and wait for the answer.

        Parameters
        ----------
        text
            What the user says, verbatim.
        **sampling
            ``temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty,
            frequency_penalty, logit_bias, seed, max_tokens, stop, n`` for this turn alone. With
            ``n`` the answers are on ``Turn.choices``; the first one is continued.

        Raises
        ------
        ContextOverflow
            The prompt is longer than the model's context; nothing was touched.
        PendingToolCalls
            Results of tool calls must be sent first.
        QueueFull, SessionBusy
            Too much is going on.
        TemplateFailed
            The model's chat template refuses the conversation.
        RequestFailed
            The turn ended in an error; the history is as it was.
        """
        return self.reply(text, **sampling).result()

    def stream(self, text: str, **sampling: Any) -> Stream:
        """As ``send``: an iterator over `Delta`, piece by piece as generated, and last the `Turn`.

        The answer starts at once; closing or dropping the iterator stops it.
        """
        return Stream(self.reply(text, **sampling))

    async def asend(self, text: str, **sampling: Any) -> Turn:
        """As ``send``; cancelling the task stops the answer."""
        pieces = self.astream(text, **sampling)
        return [piece async for piece in pieces if isinstance(piece, Turn)][-1]

    def astream(self, text: str, **sampling: Any) -> AsyncIterator[Delta | Turn]:
        """As ``stream``; the answer starts when the first piece is asked for."""
        return follow(lambda: self.stream(text, **sampling))

    def send_tool_result(self, call_id: str, content: Any, is_error: bool = False) -> Turn | None:
        """Give the result of a tool call; when the last one is there, the model goes on.

        After a turn that failed the results are still there: give any of them again.

        Parameters
        ----------
        content
            Text, or something that has a JSON form.

        Returns
        -------
        Turn or None
            The model's next turn; None while results are outstanding.

        Raises
        ------
        UnknownToolCall
            No such call is outstanding.
        InvalidOption
            The content has no JSON form.
        """
        pending = self._history.pending
        self._results.add(pending, call_id, content, is_error)
        results = self._results.messages(pending)
        return None if results is None else self._reply(results, Sampling(), "python").result()

    def reply(self, text: str, source: Source = "python", **sampling: Any) -> Reply:
        """As ``send``, returning at once: the answer's events can be followed and cancelled."""
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

    def fork(self, name: str | None = None) -> Session:
        """A new session with the same past; both share all KV that is there.

        While a turn runs, the past is what was before it.
        """
        other = self._engine.adopt(name, self.options, f"{self.name}-fork")
        other._history, other._key = self._history, self._key
        other._results, other.forked_from = self._results.copy(), self.name
        return other

    def rewind(self, turns: int = 1) -> None:
        """Take back the last turns; what stays is not computed again.

        Raises
        ------
        InvalidOption
            There are fewer turns.
        SessionBusy
            A turn is running.
        """
        if isinstance(turns, bool) or not isinstance(turns, int) or not 0 < turns <= self.turns:
            raise InvalidOption(
                f"turns of the session {self.name!r}: {self.turns}; {turns!r} cannot be taken back"
            )
        self._set_back(lambda: self._history.rewound(turns))

    def reset(self) -> None:
        """Forget everything that was said; the system text stays.

        Raises
        ------
        SessionBusy
            A turn is running.
        """
        self._set_back(self._beginning)

    def _set_back(self, earlier: Callable[[], History]) -> None:
        self._take()
        try:
            self._history, self._results = earlier(), Results()
        finally:
            self._busy.release()
