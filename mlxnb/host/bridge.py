"""Engine events on an event loop: handed over on the engine's thread, taken by a coroutine.

A token takes this way each time, beside the engine's computing: it is short.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from mlxnb.engine.events import Event


class Bridge:
    """A queue with one giver on any thread and one taker on ``loop``.

    Giving never blocks and never raises, be the loop closed: the engine must not notice.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    def hand(self, event: Event) -> None:
        """Give an event; any thread."""
        self._events.append(event)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._wake)

    async def take(self, deadline: float | None = None) -> list[Event]:
        """All events that have come, waiting for one; none: it is ``deadline`` (loop time)."""
        while not self._events and not (deadline is not None and self._loop.time() >= deadline):
            self._set_alarm(deadline)
            self._waiter = self._loop.create_future()
            await self._waiter
        return [self._events.popleft() for _ in range(len(self._events))]

    def close(self) -> None:
        """Nobody takes any more."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _set_alarm(self, deadline: float | None) -> None:
        """One alarm serves many deadlines, each later than the last: it may come too early."""
        if deadline is None or (self._alarm is not None and self._alarm.when() <= deadline):
            return
        self.close()
        self._alarm = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
