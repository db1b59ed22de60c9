"""An answer followed from asyncio: read on a thread of its own, handed over piece by piece."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from mlxnb.records.turn import Turn
from mlxnb.sessions.delta import Delta
from mlxnb.sessions.stream import Stream

Piece = Delta | Turn


async def follow(start: Callable[[], Stream]) -> AsyncGenerator[Piece]:
    """The pieces of an answer; cancelling the task, or closing this, stops it.

    ``start`` may block (it renders and plans), so it is called on that thread too; what it
    raises is raised here. asyncio's own pool is not used: its few threads would be the limit of
    how many answers run at a time.
    """
    reader = _Reader(start, asyncio.get_running_loop())
    threading.Thread(target=reader.run, name="mlxnb-follow", daemon=True).start()
    try:
        while (piece := await reader.pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        reader.stop()


class _Reader:
    """Reads an answer on a thread and hands its pieces to an event loop; None is the end."""

    def __init__(self, start: Callable[[], Stream], loop: asyncio.AbstractEventLoop) -> None:
        self.pieces: asyncio.Queue[Piece | BaseException | None] = asyncio.Queue()
        self._start, self._loop = start, loop
        self._stream: Stream | None = None
        self._stopped = threading.Event()

    def run(self) -> None:
        """Read to the end."""
        try:
            self._stream = self._start()
            if self._stopped.is_set():
                self._stream.cancel()
            for piece in self._stream:
                self._hand(piece)
            self._hand(None)
        except BaseException as error:
            self._hand(error)

    def _hand(self, piece: Piece | BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.pieces.put_nowait, piece)

    def stop(self) -> None:
        """Stop the answer, be it one that has not started yet; harmless when it has ended."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.cancel()
