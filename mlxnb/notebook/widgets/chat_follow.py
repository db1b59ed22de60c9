"""One answer on its way into the chats that show it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mlxnb.engine.events import Event, Piece, Prefill
from mlxnb.notebook.pace import Pace
from mlxnb.notebook.widgets.transcript import Exchange, as_call

if TYPE_CHECKING:
    from mlxnb.notebook.widgets.chat_room import Room
    from mlxnb.sessions.reply import Reply

TICK_S = 0.01
"""Between two looks at whether the next showing is due."""


def stop(reply: Reply) -> None:
    """Stop an answer and do not wait: another process may have to be told."""
    threading.Thread(target=reply.cancel, name="mlxnb-chat-stop", daemon=True).start()


class Following:
    """Shows what comes at most 20 times a second.

    Parameters
    ----------
    exchange
        What shows it; the caller ends it.
    pace
        That of the whole turn.
    """

    def __init__(self, room: Room, exchange: Exchange, pace: Pace) -> None:
        self._room, self._exchange, self._pace = room, exchange, pace
        self._fresh, self._over = threading.Event(), threading.Event()
        self._news: dict[str, Any] = {}

    def follow(self, events: Iterable[Event]) -> None:
        """Note all events; another thread shows them, also when none follow for a while."""
        shower = threading.Thread(target=self._show, name="mlxnb-chat-show", daemon=True)
        shower.start()
        try:
            for event in events:
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


def _size(told: dict[str, Any]) -> int:
    """Characters of an update, roughly."""
    parts = [told.get("answer", {}), told.get("reasoning", {})]
    blocks = [block for part in parts for block in part.get("blocks", [])]
    texts = [text for block in blocks for text in block.values()]
    return sum(map(len, texts)) + sum(len(part.get("more", "")) for part in parts)
