"""One request on its way to a host, and the answer on its way back, byte for byte."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from mlxnb.errors import HostGone, HostUnreachable
from mlxnb.jupyter.trail import Trail
from mlxnb.link.async_client import AsyncClient
from mlxnb.link.proof import Identity
from mlxnb.link.record import HostRecord
from mlxnb.wire import errors
from mlxnb.wire.errors import WireError

# What reaches a host. Cookies, credentials and XSRF tokens are not among it (W62).
REQUEST_HEADERS = (
    "Accept",
    "Content-Type",
    "User-Agent",
    "Anthropic-Version",
    "Anthropic-Beta",
    "OpenAI-Beta",
    "X-Mlxnb-Timings",
)
# What reaches a client: nothing by which hosts and notebook servers know each other.
RESPONSE_HEADERS = (
    "Content-Type",
    "Content-Length",
    "Cache-Control",
    "Retry-After",
    "Allow",
    "X-Accel-Buffering",
    "X-Session-Cache",
    "X-Cached-Tokens",
)
ATTEMPTS = 3
"""Hosts that are tried while none has seen the request."""
AGAIN_S = 0.05
TOUCH_S = 1.0
"""Seconds between two notes that a host works: each event would be too many."""

Pick = Callable[[frozenset[str]], Awaitable[HostRecord]]
"""The host to ask, without those of these uuids, which did not answer."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A request as it goes to a host."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None
    identity: Identity
    request_id: str


class Line(Protocol):
    """The client's connection. Sending raises if the client is gone."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Set the status and the headers of the answer."""

    async def send(self, data: bytes) -> None:
        """Write bytes, headers before the first, and wait until the system has them."""

    async def end(self) -> None:
        """End a whole answer."""

    def destroy(self) -> None:
        """Close the connection, so that what went out cannot pass for a whole answer."""


class Passage:
    """Passes one request on. Cancelling it closes the host's connection, and so stops the work.

    Parameters
    ----------
    client
        Connections to a host.
    touch
        Called with the host when something comes from it, now and then.
    """

    def __init__(
        self,
        parcel: Parcel,
        line: Line,
        client: Callable[[HostRecord], AsyncClient],
        touch: Callable[[HostRecord], None],
    ) -> None:
        self._parcel, self._line = parcel, line
        self._client, self._touch = client, touch
        self._touched = -math.inf
        self._begun = False
        self._trail: Trail | None = None

    async def run(self, pick: Pick) -> None:
        """Ask hosts until one has seen the request, and pass its answer on.

        Raises
        ------
        WireError, HostGone, ProofFailed
            There is no answer; nothing was sent to the client.
        """
        tried: frozenset[str] = frozenset()
        for attempt in range(1, ATTEMPTS + 1):
            record = await pick(tried)
            try:
                await self._through(record)
                return
            except HostUnreachable:
                if attempt == ATTEMPTS:
                    raise
                tried |= {record.uuid}
                await asyncio.sleep(AGAIN_S)  # until its end has been noticed
            except HostGone as error:
                if not self._begun:
                    raise
                await self.break_off(errors.of(error))
                return

    async def _through(self, record: HostRecord) -> None:
        parcel = self._parcel
        async with self._client(record).stream(
            parcel.method,
            parcel.path,
            body=parcel.body,
            headers=parcel.headers,
            identity=parcel.identity,
        ) as answer:
            self._note(record)
            await self._begin(answer)
            async for chunk in answer.content.iter_any():
                self._note(record)
                if self._trail is not None:
                    self._trail.feed(chunk)
                await self._line.send(chunk)
        await self._line.end()

    def _note(self, record: HostRecord) -> None:
        now = time.monotonic()
        if now >= self._touched + TOUCH_S:
            self._touched = now
            self._touch(record)

    async def _begin(self, answer: aiohttp.ClientResponse) -> None:
        kept = {name: answer.headers[name] for name in RESPONSE_HEADERS if name in answer.headers}
        self._line.begin(answer.status, kept)
        self._begun = True
        if kept.get("Content-Type", "").startswith("text/event-stream"):
            self._trail = Trail(self._parcel.path)
            await self._line.send(b"")  # the headers go out before the first event

    async def break_off(self, told: WireError) -> None:
        """End an answer in its midst with an error (W42). Raises it where nothing was sent yet."""
        if not self._begun:
            raise told
        if self._trail is None or not (self._trail.between or self._trail.ended):
            self._line.destroy()
            return
        if not self._trail.ended:
            await self._line.send(self._trail.broken_off(told, self._parcel.request_id))
        await self._line.end()
