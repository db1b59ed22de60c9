"""Engine events on an event loop: handed over on the engine's thread, taken by a coroutine."""

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
        self._arrived = asyncio.Event()

    def hand(self, event: Event) -> None:
        """Give an event; any thread."""
        self._events.append(event)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._arrived.set)

    async def take(self, deadline: float | None = None) -> list[Event]:
        """All events that have come, waiting for one; none: it is ``deadline`` (loop time)."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while not self._events:
                    await self._arrived.wait()
                    self._arrived.clear()
        return [self._events.popleft() for _ in range(len(self._events))]
