"""A turn that another door of this process has begun, as the chats on its session show it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlxnb.engine.events import Event
from mlxnb.notebook.pace import Pace
from mlxnb.notebook.widgets.chat_follow import Following, stop
from mlxnb.notebook.widgets.transcript import Exchange, meter, results_of

if TYPE_CHECKING:
    from mlxnb.notebook.widgets.chat_room import Room
    from mlxnb.records.turn import Turn
    from mlxnb.sessions.reply import Reply

log = logging.getLogger(__name__)
LOOK_S = 0.05
"""Between two looks at whether the turn has ended, while nobody reads its events."""


class Onlooking:
    """Shows what whoever asked reads of the answer, when they read it; its end at once.

    Parameters
    ----------
    said
        What was said; None: the turn goes on from results of tools.
    after
        The turn that had ended last when it began.
    before
        What is shown to its end first.

    Attributes
    ----------
    exchange
        What shows it.
    sure
        All results of tools that it goes on from are shown: some may not be known here.
    """

    def __init__(
        self,
        room: Room,
        said: str | None,
        after: Turn | None,
        reply: Reply,
        before: Onlooking | None,
    ) -> None:
        self._room, self._reply, self._before = room, reply, before
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        results = results_of(room.session, after)
        due = {call.id for call in after.tool_calls} if after is not None else set()
        known = after is None or after.ended_well  # else there may be some of the turn before it
        self.sure = known and due == {result["id"] for result in results}
        self.exchange = Exchange(said, results, kept=False, running=True)
        self._over = threading.Event()
        reply.tap(self._events.put)

    def begin(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="mlxnb-chat-look", daemon=True).start()

    def stop(self) -> None:
        """Stop the turn."""
        stop(self._reply)

    # --- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._before is not None:
                self._before._over.wait()
            self._show()
        except Exception:
            log.exception("a chat did not see a turn of its session")
        finally:
            self._room.over(self)
            self._over.set()

    def _show(self) -> None:
        exchange = self.exchange
        self._room.begun(exchange)
        Following(self._room, exchange, Pace()).follow(self._read())
        turn = self._reply.turn
        assert turn is not None, "its events have ended"
        exchange.end(turn, meter(turn, self._room.engine))

    def _read(self) -> Iterator[Event]:
        while True:
            try:
                yield self._events.get(timeout=LOOK_S)
            except queue.Empty:
                if self._reply.turn is not None:
                    return
