"""A stream of a control route: something that blocks, told as it goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tornado.iostream import StreamClosedError

from mlxnb.host.control.route import Control, worded
from mlxnb.wire import errors
from mlxnb.wire.sse import encode

Told = tuple[str, dict[str, Any]]


class Left(Exception):
    """Nobody listens any more."""


class Events:
    """Runs a function on a thread of its own, and sends what it tells as server-sent events.

    The last event is the one that the function's result is told as, or ``failed`` with the error
    in OpenAI's shape.
    """

    def __init__(self, route: Control) -> None:
        self._route = route
        self._loop = asyncio.get_running_loop()
        self._told: asyncio.Queue[Told | None] = asyncio.Queue()
        self._left = False

    # --- the function's side ------------------------------------------------------------------

    def tell(self, name: str, payload: dict[str, Any]) -> None:
        """Send an event.

        Raises
        ------
        Left
            The client is gone; the function is to end.
        """
        if self._left:
            raise Left
        self._put((name, payload))

    def progress(self, done: int, total: int) -> None:
        """Tell how far something is; see `tell`."""
        self.tell("progress", {"done": done, "total": total})

    # --- the loop's side ----------------------------------------------------------------------

    async def run(self, name: str, function: Callable[[], dict[str, Any]]) -> None:
        """Run the function to its end, whether the client stays or not."""
        work = threading.Thread(target=self._work, args=(name, function), name="mlxnb-control")
        work.daemon = True
        work.start()
        self._route.set_header("Content-Type", "text/event-stream; charset=utf-8")
        await self._send(b"")
        while (told := await self._told.get()) is not None:
            await self._send(encode(*told))

    def leave(self) -> None:
        """The client is gone."""
        self._left = True

    async def _send(self, data: bytes) -> None:
        try:
            self._route.write(data)
            await self._route.flush()
        except StreamClosedError:
            self.leave()

    def _work(self, name: str, function: Callable[[], dict[str, Any]]) -> None:
        try:
            self._put((name, function()))
        except Left:
            pass
        except Exception as error:
            self._route.log_exception(None, error, None)
            self._put(("failed", worded(errors.of(error))))
        finally:
            self._put(None)

    def _put(self, told: Told | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._told.put_nowait, told)
