"""One answer on its way to one client: engine events in, the protocol's bytes out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tornado.iostream import StreamClosedError

from mlxnb.engine.events import Done, Event
from mlxnb.errors import RequestFailed
from mlxnb.host import faults
from mlxnb.host.bridge import Bridge
from mlxnb.host.door import Filing, Machine
from mlxnb.sessions.failure import Kind, kind_of
from mlxnb.wire import Event as WireEvent

if TYPE_CHECKING:
    from mlxnb.sessions.serving.answer import Answer
    from mlxnb.sessions.serving.service import Service

Outcome = Kind | Literal["completed"]
"""How an exchange ended (W41)."""

_TOLD = {"client_abort": "the response was cancelled", "stream_exhausted": "the answer broke off"}


class Line(Protocol):
    """The connection that an answer goes out on. Sending raises `StreamClosedError`."""

    @property
    def request_id(self) -> str:
        """For the log."""

    async def send(self, data: bytes) -> None:
        """Write bytes, after the headers of a stream, and wait until the kernel has them."""

    async def complete(self, body: bytes) -> None:
        """Write a whole JSON body and end."""

    def destroy(self) -> None:
        """Close the connection, so that what went out cannot pass for a whole answer."""


class Exchange:
    """Follows an answer to its end, whatever becomes of its client.

    A client that goes away cancels the answer; its events are read to the end all the same, so
    that what is in flight is known. What is finished is filed before the client hears of it, and
    taken back if the client could not be told (W23).

    Parameters
    ----------
    encode
        A wire event as bytes.
    keep_alive_s
        Silence, in seconds, after which a stream gets an event that says nothing new (W33).
    blocking
        Runs a function that blocks, off the loop.
    watch
        Called with each batch of events as it comes.
    """

    def __init__(
        self,
        service: Service,
        answer: Answer,
        machine: Machine,
        line: Line,
        *,
        encode: Callable[[str, dict[str, Any]], bytes],
        keep_alive_s: float,
        blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        watch: Callable[[Sequence[Event]], None] = lambda events: None,
    ) -> None:
        self.answer = answer
        self.gone = False
        self.outcome: Outcome | None = None
        self._service, self._machine, self._line = service, machine, line
        self._encode, self._keep_alive_s = encode, keep_alive_s
        self._blocking, self._watch = blocking, watch
        self._loop = asyncio.get_running_loop()
        self._bridge = Bridge(self._loop)
        self._done: Done | None = None
        answer.follow(self._bridge.hand)

    def leave(self) -> None:
        """The client is gone: the engine stops within one step."""
        self.gone = True
        self.answer.cancel()

    def so_far(self) -> dict[str, Any]:
        """The answer's body as it is now."""
        return self._machine.body()

    # --- the two kinds of answer --------------------------------------------------------------

    async def stream(self) -> None:
        """Send the answer as events, the first of them at once (W29)."""
        try:
            # the headers go out at once, be there no event yet
            await self._try(self._line.send(self._encoded(self._machine.opening())))
            await self._stream_all()
            await self._end_stream()
        except Exception as error:
            self._report("fault", error)
            await self._rescue(error)
        finally:
            await self._drain()

    async def plain(self) -> None:
        """Send the answer as one JSON body.

        Raises
        ------
        Exception
            What went wrong with it; nothing has been sent then.
        """
        try:
            while self._done is None:
                self._take(await self._bridge.take())
            error = self._judge(self._done)
            if self.outcome == "completed":
                await self._complete()
            elif error is not None:
                raise error
        finally:
            await self._drain()

    async def _stream_all(self) -> None:
        """Send what the engine's events give, up to the last; keep a silent line alive."""
        deadline = self._loop.time() + self._keep_alive_s
        while self._done is None:
            out = self._take(await self._bridge.take(deadline))
            silent = self._loop.time() >= deadline
            if not out and silent and self._done is None:
                out = list(self._machine.quiet())
            if out or silent:
                deadline = self._loop.time() + self._keep_alive_s
            await self._send(out)

    async def _end_stream(self) -> None:
        assert self._done is not None, "a stream has been read to its end"
        error = self._judge(self._done)
        if self.outcome == "completed":
            assert self.answer.turn is not None, "a completed answer has its turn"
            last = self._machine.finish(self.answer.turn)
            await self._committed(lambda: self._send(last))
        elif error is not None:
            await self._send(self._machine.fail(error))

    async def _complete(self) -> None:
        assert self.answer.turn is not None, "a completed answer has its turn"
        self._machine.finish(self.answer.turn)
        body = json.dumps(self._machine.body(), ensure_ascii=False).encode()
        await self._committed(lambda: self._try(self._line.complete(body)))

    def _take(self, events: Sequence[Event]) -> list[WireEvent]:
        """What a batch of engine events gives; notes the end."""
        self._watch(events)
        out: list[WireEvent] = []
        for event in events:
            if isinstance(event, Done):
                self._done = event
                break
            out += self._machine.feed(event)
        return out

    # --- the end ------------------------------------------------------------------------------

    def _judge(self, done: Done) -> Exception | None:
        """Settle how it ended (W41); the error that the client is to be told, if any."""
        error = self.answer.error or done.error
        kind = "client_abort" if self.gone else kind_of(done.finish_reason, error)
        if kind is None and self.answer.turn is None:
            kind = "stream_exhausted"
        self.outcome = kind or "completed"
        if kind is None:
            return None
        self._report(kind, error)
        if self.gone:
            self._machine.abort()
            return None
        return error or RequestFailed(_TOLD.get(kind, "the model failed"))

    async def _committed(self, deliver: Callable[[], Awaitable[None]]) -> None:
        """File a finished answer, tell the client, and take it back if that fails."""
        filed = await self._off_loop("filing", self._file)
        if not self.gone:
            await deliver()
        if self.gone:
            self.outcome = "client_abort"
            self._report("client_abort", None)
            if filed:
                await self._off_loop("unfiling", lambda: self._service.unfile(self.answer))

    def _file(self) -> None:
        if isinstance(self._machine, Filing):
            response, items = self._machine.to_file(self.answer)
            self._service.file(self.answer, response=response, input_items=items)

    async def _off_loop(self, what: str, function: Callable[[], object]) -> bool:
        """Run a function of the store's; its failure costs the row, never the answer (C21)."""
        try:
            await self._blocking(function)
        except Exception as error:
            self._report(f"{what} failed", error)
            return False
        return True

    async def _rescue(self, error: Exception) -> None:
        """End a stream whose machine is at fault: with its error event, or by closing it."""
        self.outcome = "error"
        self.answer.cancel()
        try:
            await self._send(self._machine.fail(error))
        except Exception:
            self._line.destroy()

    async def _drain(self) -> None:
        """Wait until the engine is done with it; nobody need wait for its row any more."""
        if self._done is None:
            self.answer.cancel()
        while self._done is None:
            for event in await self._bridge.take():
                if isinstance(event, Done):
                    self._done = event
        self._bridge.close()
        self.answer.settled.set()

    # --- the line -----------------------------------------------------------------------------

    async def _send(self, events: Iterable[WireEvent]) -> None:
        data = self._encoded(events)
        if data and not self.gone:
            await self._try(self._line.send(data))

    def _encoded(self, events: Iterable[WireEvent]) -> bytes:
        return b"".join(self._encode(name, payload) for name, payload in events)

    async def _try(self, sending: Awaitable[None]) -> None:
        try:
            await sending
        except StreamClosedError:
            self.leave()

    def _report(self, kind: str, error: Exception | None) -> None:
        faults.report(kind, error, model=self.answer.model, request_id=self._line.request_id)
