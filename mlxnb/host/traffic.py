"""What is in flight on a host: counted in and out once, and brought to an end when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxnb.host.exchange import Exchange

STOPS_S = 5.0
"""Seconds that an exchange which was told to end may take."""


class Traffic:
    """The exchanges of one host, over all of its sockets. Its own loop's alone.

    Attributes
    ----------
    requests
        Exchanges that began since the start.
    closing
        No new exchange is to begin.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.closing = False
        self._running: set[Exchange] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def in_flight(self) -> int:
        """Exchanges that have begun and whose engine's work has not ended."""
        return len(self._running)

    @contextmanager
    def running(self, exchange: Exchange) -> Iterator[None]:
        """Count an exchange while the context lasts."""
        self.requests += 1
        self._running.add(exchange)
        self._idle.clear()
        try:
            yield
        finally:
            self._running.discard(exchange)
            if not self._running:
                self._idle.set()

    def find(self, response_id: str) -> Exchange | None:
        """The exchange of that response, while it runs."""
        return next((e for e in self._running if e.answer.response_id == response_id), None)

    async def drain(self, patience_s: float) -> None:
        """Take nothing new; let what runs end, and after ``patience_s`` seconds stop it.

        What does not stop, because the engine is stuck, is given up.
        """
        self.closing = True
        if await self._idle_within(patience_s):
            return
        for exchange in list(self._running):
            exchange.leave()
        await self._idle_within(STOPS_S)

    async def _idle_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._idle.wait()
        except TimeoutError:
            return False
