"""One message in a chat: the turns that come of it, followed on a thread of their own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlxnb.errors import InvalidOption, MlxnbError, RequestFailed
from mlxnb.notebook.pace import Pace
from mlxnb.notebook.widgets.chat_follow import Following
from mlxnb.notebook.widgets.transcript import Exchange, meter
from mlxnb.sessions.toolbox_rounds import Watcher, run

if TYPE_CHECKING:
    from mlxnb.notebook.widgets.chat_room import Room
    from mlxnb.records.turn import Turn
    from mlxnb.sessions.reply import Reply
    from mlxnb.sessions.toolbox_calls import Called

log = logging.getLogger(__name__)


class _Stopped(Exception):
    """The user has stopped it between two turns."""


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
        self._next = Exchange(text, kept=False, running=True, request=request)
        self._shown: Exchange | None = None  # the last turn that has begun
        self._note = ""
        self._stopped = threading.Event()
        self._reply: Reply | None = None
        self._pace = Pace()

    def begin(self, sampling: dict[str, Any]) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, args=(sampling,), name="mlxnb-chat", daemon=True).start()

    def stop(self) -> None:
        """Stop it, be it before the engine has it."""
        self._stopped.set()
        if self._reply is not None:
            threading.Thread(target=self._reply.cancel, name="mlxnb-chat-stop", daemon=True).start()

    # --- on the thread ------------------------------------------------------------------------

    def _run(self, sampling: dict[str, Any]) -> None:
        session, problem = self._room.session, ""
        try:
            if session.toolbox.asking:
                raise InvalidOption(_asks(session.toolbox.asking))
            run(session, self._text, watcher=self, source="widget", **sampling)
        except _Stopped:
            pass
        except Exception as error:
            problem = _said(error)
        if self._shown is None:
            self._room.ended(None)
            self._refused(problem)
        else:
            self._end(self._shown, problem or self._note)

    def _end(self, exchange: Exchange, problem: str) -> None:
        exchange.running = False
        if problem:
            exchange.meter = {**(exchange.meter or {}), "problem": problem}

        def show() -> int:
            self._room.ended(exchange)
            return 0

        self._pace.show(show)

    def turn(self, begin: Callable[[], Reply]) -> Turn:
        """See `Watcher.turn`."""
        reply = begin()
        self._reply, exchange = reply, self._next
        if self._stopped.is_set():
            reply.cancel()
        if self._shown is not None:
            self._room.changed(self._shown)
        self._shown = exchange
        self._room.begun(exchange)
        try:
            Following(self._room, exchange, self._pace).follow(reply)
        finally:
            if reply.turn is None:
                reply.cancel()
            else:
                exchange.end(reply.turn, meter(reply.turn, self._room.engine))
        self._next = Exchange(None, kept=False, running=True)
        assert reply.turn is not None, "a turn has ended when its events have"
        return reply.turn

    def called(self, call: Called) -> None:
        """See `Watcher.called`."""
        text = call.result if call.error is None else f"[tool error] {call.error}"
        self._next.results.append({"id": call.call_id, "name": call.name, "text": text or ""})
        if self._stopped.is_set():
            raise _Stopped

    def note(self, text: str) -> None:
        """See `Watcher.note`."""
        self._note = text


def _asks(names: list[str]) -> str:
    return (
        f"before {', '.join(names)} is called you are asked, which a chat cannot: register it with "
        "confirm=False, or %mlx_tools --no-confirm; %mlx_chat can ask"
    )


def _said(error: Exception) -> str:
    """What a user is told of an error, on one line; all of it is in the log if it is ours."""
    if isinstance(error, MlxnbError) and not isinstance(error, RequestFailed):
        return " ".join(str(error).split())
    cause = error.__cause__ if isinstance(error, RequestFailed) else error
    if not isinstance(cause, MlxnbError):
        log.error("a chat's turn failed: %s", type(cause).__name__)
    return " ".join(str(error).split()) or type(error).__name__
