"""One turn of a chat, followed on a thread of its own."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlxnb.engine.events import Event, Piece, Prefill
from mlxnb.errors import MlxnbError, RequestFailed
from mlxnb.notebook.pace import Pace
from mlxnb.notebook.widgets.transcript import Exchange, as_call

if TYPE_CHECKING:
    from mlxnb.notebook.widgets.chat_room import Room
    from mlxnb.sessions.reply import Reply

log = logging.getLogger(__name__)

TICK_S = 0.01
"""Between two looks at whether the next showing is due."""


class ChatTurn:
    """Asks, shows what comes at most 20 times a second, and always how it ends.

    Parameters
    ----------
    exchange
        What shows it.
    refused
        Called with the reason if no turn comes of it.
    """

    def __init__(self, room: Room, exchange: Exchange, refused: Callable[[str], None]) -> None:
        self._room, self._exchange, self._refused = room, exchange, refused
        self._stopped = threading.Event()
        self._reply: Reply | None = None
        self._pace = Pace()
        self._fresh, self._over = threading.Event(), threading.Event()
        self._news: dict[str, Any] = {}

    def begin(self, text: str, sampling: dict[str, Any]) -> None:
        """Start the thread."""
        threading.Thread(
            target=self._run, args=(text, sampling), name="mlxnb-chat", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop it, be it before the engine has it."""
        self._stopped.set()
        if self._reply is not None:
            threading.Thread(target=self._reply.cancel, name="mlxnb-chat-stop", daemon=True).start()

    # --- on the thread ------------------------------------------------------------------------

    def _run(self, text: str, sampling: dict[str, Any]) -> None:
        try:
            self._reply = self._room.session.reply(text, source="widget", **sampling)
        except Exception as error:
            self._room.ended(None)
            self._refused(_said(error))
            return
        if self._stopped.is_set():
            self._reply.cancel()
        self._room.begun(self._exchange)
        problem = ""
        try:
            self._follow(self._reply)
        except Exception as error:
            problem = _said(error)
        self._end(self._reply, problem)

    def _follow(self, reply: Reply) -> None:
        """Note all events; another thread shows them, also when none follow for a while."""
        shower = threading.Thread(target=self._show, name="mlxnb-chat-show", daemon=True)
        shower.start()
        try:
            for event in reply.events():
                self._take(event)
                self._fresh.set()
        finally:
            self._over.set()
            self._fresh.set()
            shower.join()

    def _show(self) -> None:
        while self._fresh.wait() and not self._over.is_set():
            self._fresh.clear()
            while not self._pace.due and not self._over.wait(TICK_S):
                pass
            if not self._over.is_set():
                self._pace.show(self._publish)

    def _take(self, event: Event) -> None:
        exchange = self._exchange
        if isinstance(event, Prefill):
            with self._room.lock:
                self._news["prefill"] = dataclasses.asdict(event)
        if not isinstance(event, Piece):
            return
        with self._room.lock:
            if event.kind == "tool_call" and event.call is not None:
                exchange.calls.append(as_call(event.call))
                self._news["calls"] = list(exchange.calls)
            elif event.kind == "text":
                exchange.answer.feed(event.text)
            elif event.kind == "reasoning":
                exchange.thought.feed(event.text)

    def _publish(self) -> int:
        exchange = self._exchange
        with self._room.lock:
            told, self._news = self._news, {}
            for name, blocks in (("answer", exchange.answer), ("reasoning", exchange.thought)):
                if (news := blocks.news()) is not None:
                    told[name] = news
            if told:
                self._room.tell({"kind": "stream", "id": exchange.id, **told})
        return _size(told)

    def _end(self, reply: Reply, problem: str) -> None:
        if reply.turn is None:
            reply.cancel()
        else:
            self._exchange.end(reply.turn)
        self._exchange.running = False
        if problem:
            self._exchange.meter = {**(self._exchange.meter or {}), "problem": problem}
        self._pace.show(self._finish)

    def _finish(self) -> int:
        self._room.ended(self._exchange)
        return 0


def _size(told: dict[str, Any]) -> int:
    """Characters of an update, roughly."""
    parts = [told.get("answer", {}), told.get("reasoning", {})]
    blocks = [block for part in parts for block in part.get("blocks", [])]
    texts = [text for block in blocks for text in block.values()]
    return sum(map(len, texts)) + sum(len(part.get("more", "")) for part in parts)


def _said(error: Exception) -> str:
    """What a user is told of an error, on one line; all of it is in the log if it is ours."""
    if isinstance(error, MlxnbError) and not isinstance(error, RequestFailed):
        return " ".join(str(error).split())
    cause = error.__cause__ if isinstance(error, RequestFailed) else error
    if not isinstance(cause, MlxnbError):
        log.error("a chat's turn failed: %s", type(cause).__name__)
    return " ".join(str(error).split()) or type(error).__name__
