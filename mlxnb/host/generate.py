"""The routes that generate: one handler for all protocols, differing in their `Door` alone."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace

from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError

from mlxnb.host.context import Context
from mlxnb.host.door import Asked, Door, Machine
from mlxnb.host.exchange import Exchange
from mlxnb.host.meters import Meter
from mlxnb.host.route import Route
from mlxnb.host.sight import Sight
from mlxnb.link.patience import patience
from mlxnb.sessions.serving.answer import Answer
from mlxnb.wire import errors
from mlxnb.wire.body import read
from mlxnb.wire.errors import WireError
from mlxnb.wire.headers import TIMINGS, cache_headers, with_timings


class Generate(Route):
    """``POST`` of a request, answered as a stream or as one body.

    All that can be wrong with a request is found before a header is sent, and before a model is
    loaded for it (W13, W14).
    """

    def initialize(self, context: Context, door: Door) -> None:  # type: ignore[override]
        """Take what all handlers share, and the protocol."""
        super().initialize(context)
        self.shape, self._door = door.shape, door
        self._arrived = time.perf_counter()
        self._exchange: Exchange | None = None
        self._gone = False

    async def post(self) -> None:
        """Begin, and see the answer to its end."""
        try:
            asked, answer, machine = await self.context.blocking(self._begin)
        except StreamClosedError:
            self.context.meters.refused(self._door.name, "client_abort")
            return
        except Exception as error:
            self.context.meters.refused(self._door.name, str(errors.of(error).status))
            raise
        self.model = answer.model
        await self._see_through(machine, answer, asked.stream)

    def on_connection_close(self) -> None:
        """Stop the engine's work within one step, whatever it is at (W43)."""
        super().on_connection_close()
        self._gone = True
        if self._exchange is not None:
            self._exchange.leave()

    def _begin(self) -> tuple[Asked, Answer, Machine]:
        """Check, map, count, plan and queue; on a thread of the pool."""
        if self.context.traffic.closing:
            raise WireError(503, "this host is stopping", headers={"Retry-After": "1"})
        service, caller = self.context.service, Sight(self.caller).caller
        body = with_timings(read(self.request.body), self.request.headers.get(TIMINGS))
        asked = self._door.understand(service, body, caller)
        if self._gone:
            raise StreamClosedError
        answer = service.begin(replace(asked.ask, arrived=self._arrived))
        try:
            return asked, answer, asked.machine(answer, self.request_id)
        except BaseException:
            answer.cancel()
            raise

    # --- the answer ---------------------------------------------------------------------------

    async def _see_through(self, machine: Machine, answer: Answer, wants_stream: bool) -> None:
        meter = Meter(self.context.meters, self._door.name, answer.model)
        exchange = self._exchange = Exchange(
            self.context.service,
            answer,
            machine,
            self,
            encode=self._door.encode,
            keep_alive_s=self.context.limits.keep_alive_s,
            blocking=self.context.blocking,
            watch=meter.watch,
        )
        if self._gone:
            exchange.leave()
        for name, value in cache_headers(answer).items():
            self.set_header(name, value)
        try:
            with self.context.traffic.running(exchange):
                await self._run(exchange, wants_stream)
        finally:
            meter.ended(exchange.outcome or "error", answer.turn)

    async def _run(self, exchange: Exchange, wants_stream: bool) -> None:
        if not wants_stream:
            await exchange.plain()
            return
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        self.set_header("Cache-Control", "no-cache, no-transform")
        self.set_header("X-Accel-Buffering", "no")
        # an event goes out though the last is not acknowledged yet, which takes up to 40 ms
        self._connection.stream.set_nodelay(True)
        await exchange.stream()
        if not self._finished:
            with suppress(StreamClosedError):
                await self._taken(self.finish())

    # --- its line, see `Line` -----------------------------------------------------------------

    async def send(self, data: bytes) -> None:
        """Write bytes and wait until the kernel has them."""
        self.write(data)
        await self._taken(self.flush())

    async def complete(self, body: bytes) -> None:
        """Write a whole JSON body and end."""
        await self._taken(self.finish(body))

    async def _taken(self, writing: Awaitable[None]) -> None:
        limit = self.context.limits.write_timeout_s
        with patience(self._connection.stream.close, limit, StreamClosedError):
            await writing

    @property
    def _connection(self) -> HTTP1Connection:
        connection = self.request.connection
        assert isinstance(connection, HTTP1Connection), "no other is served"
        return connection

    def destroy(self) -> None:
        """Close the connection."""
        self.detach().close()
