"""One message in a chat: the turns that come of it, followed on a thread of their own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlxnb.errors import MlxnbError, RequestFailed
from mlxnb.notebook.pace import Pace
from mlxnb.notebook.widgets.chat_calls import Calls, Pending, Printed, Stopped
from mlxnb.notebook.widgets.chat_follow import Following, stop
from mlxnb.notebook.widgets.transcript import Exchange, as_result, meter, results_due
from mlxnb.sessions.toolbox import Consent, Outcome
from mlxnb.sessions.toolbox_rounds import Watcher, run
from mlxnb.sessions.toolbox_run import STOPPED

if TYPE_CHECKING:
    from mlxnb.notebook.widgets.chat_room import Room
    from mlxnb.records.turn import ToolCall, Turn
    from mlxnb.sessions.reply import Reply
    from mlxnb.sessions.toolbox_calls import Called

log = logging.getLogger(__name__)


class ChatTurn(Watcher):
    """Says something, and calls the functions that the model calls, until there is an answer.

    Parameters
    ----------
    text
        What the user says.
    request
        The front end's own id of it.
    refused
        Called with the reason if no turn comes of it.
    """

    def __init__(
        self, room: Room, text: str, request: str | None, refused: Callable[[str], None]
    ) -> None:
        self._room, self._text, self._refused = room, text, refused
        due = results_due(room.session)
        self._next = Exchange(text, due, kept=False, running=True, request=request)
        self._shown: Exchange | None = None  # the last turn that has begun
        self._note = ""
        self._calls = Calls(self._show_pending, self._show_printed)
        self._reply: Reply | None = None
        self._pace = Pace()

    def begin(self, sampling: dict[str, Any]) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, args=(sampling,), name="mlxnb-chat", daemon=True).start()

    def stop(self) -> None:
        """Stop it, be it before the engine has it."""
        self._calls.stop()
        if self._reply is not None:
            stop(self._reply)

    def answer(self, call_id: str, consent: Consent) -> bool:
        """Answer what is asked about a call; False: nothing is, any more."""
        return self._calls.answer(call_id, consent)

    # --- on the thread ------------------------------------------------------------------------

    def _run(self, sampling: dict[str, Any]) -> None:
        session, problem = self._room.session, ""
        try:
            run(session, self._text, watcher=self, source="widget", **sampling)
        except Stopped:
            self._note = STOPPED
        except BaseException as error:  # whatever it is, the turn must be seen to end
            problem = _said(error)
        if self._shown is None:
            self._room.ended(None)
            self._refused(problem)
        else:
            self._end(self._shown, problem or self._note)

    def _end(self, exchange: Exchange, problem: str) -> None:
        exchange.running = False
        if problem:
            exchange.fail(problem)

        def show() -> int:
            self._room.ended(exchange)
            return 0

        self._pace.show(show)

    def turn(self, begin: Callable[[], Reply]) -> Turn:
        """See `Watcher.turn`."""
        reply = begin()
        self._reply, exchange = reply, self._next
        if self._calls.stopped:
            reply.cancel()
        if self._shown is not None:
            self._room.changed(self._shown)
        self._shown = exchange
        self._room.begun(exchange)
        try:
            Following(self._room, exchange, self._pace).follow(reply.events())
        finally:
            if reply.turn is None:
                reply.cancel()
            else:
                exchange.end(reply.turn, meter(reply.turn, self._room.engine))
        self._next = Exchange(None, kept=False, running=True)
        assert reply.turn is not None, "a turn has ended when its events have"
        return reply.turn

    @property
    def can_ask(self) -> bool:
        """See `Watcher.can_ask`."""
        return True

    def ask(self, call: ToolCall) -> Consent:
        """See `Watcher.ask`: on the page."""
        return self._calls.ask(call)

    def carry_out(self, call: ToolCall, work: Callable[[], Outcome]) -> Outcome:
        """See `Watcher.carry_out`: on the main thread."""
        return self._calls.carry_out(call, work)

    def _show_pending(self, pending: Pending | None) -> None:
        assert self._shown is not None, "a turn has made the call"
        self._shown.pending = pending
        self._room.show(self._shown)

    def _show_printed(self, printed: Printed) -> None:
        assert self._shown is not None, "a turn has made the call"
        self._shown.outputs.append(printed)
        self._room.show(self._shown)

    def called(self, call: Called) -> None:
        """See `Watcher.called`."""
        self._next.results.append(as_result(call))
        if self._calls.stopped:
            raise Stopped

    def note(self, text: str) -> None:
        """See `Watcher.note`."""
        self._note = text


def _said(error: BaseException) -> str:
    """What a user is told of an error, on one line; all of it is in the log if it is ours."""
    if isinstance(error, MlxnbError) and not isinstance(error, RequestFailed):
        return " ".join(str(error).split())
    cause = error.__cause__ if isinstance(error, RequestFailed) else error
    if not isinstance(cause, MlxnbError):
        log.error("a chat's turn failed: %s", type(cause).__name__)
    return " ".join(str(error).split()) or type(error).__name__
