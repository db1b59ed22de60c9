"""HTTP to a host over its Unix socket, with proofs both ways; blocking and for asyncio."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from mlxnb.errors import HostGone, HostRefused, HostUnreachable
from mlxnb.link.places import check_private
from mlxnb.link.proof import Identity, check, owner, sign
from mlxnb.link.record import HostRecord

# An answer may take as long as its model takes; a host of this machine is reached at once.
TIMEOUT = httpx2.Timeout(None, connect=5.0)
# The host knows how many requests it takes.
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)


class Client:
    """Blocking requests to one host. Any thread may use it; ``close`` it at the end."""

    def __init__(self, record: HostRecord) -> None:
        self.record = record
        self._transport = httpx2.HTTPTransport(uds=_socket(record), limits=LIMITS)

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        identity: Identity | None = None,
    ) -> Iterator[httpx2.Response]:
        """Send a request; inside the context, its answer's body can be read as it comes.

        Parameters
        ----------
        identity
            Whom the request speaks for; None: this process's user.

        Raises
        ------
        HostUnreachable
            No connection: the host has seen nothing of the request.
        HostGone
            The host was lost in the midst of its answer.
        ProofFailed
            What answers is not the host.
        """
        request = _request(self.record, method, path, body, headers, identity)
        with _gone(self.record):
            answer = self._transport.handle_request(request)
            try:
                check(self.record.secret, request.headers, answer.headers)
                yield answer
            finally:
                answer.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send JSON, or nothing, as this process's user, and return the answer's JSON.

        Raises
        ------
        HostGone, ProofFailed
            As `stream`.
        HostRefused
            The answer's status is an error's.
        """
        content, headers = _json(body)
        with self.stream(method, path, body=content, headers=headers) as answer:
            return _parsed(answer, answer.read())

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()


class AsyncClient:
    """As `Client`, for one event loop. Cancelling the task closes the request's connection."""

    def __init__(self, record: HostRecord) -> None:
        self.record = record
        self._transport = httpx2.AsyncHTTPTransport(uds=_socket(record), limits=LIMITS)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        identity: Identity | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """As `Client.stream`."""
        request = _request(self.record, method, path, body, headers, identity)
        with _gone(self.record):
            answer = await self._transport.handle_async_request(request)
            try:
                check(self.record.secret, request.headers, answer.headers)
                yield answer
            finally:
                await answer.aclose()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """As `Client.call`."""
        content, headers = _json(body)
        async with self.stream(method, path, body=content, headers=headers) as answer:
            return _parsed(answer, await answer.aread())

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


def _socket(record: HostRecord) -> str:
    assert record.socket is not None, "a notebook server's record has no socket"
    try:
        check_private(Path(record.socket).parent)
    except FileNotFoundError as error:
        raise HostUnreachable(record.title or record.kind, "its socket is gone") from error
    return record.socket


def _request(
    record: HostRecord,
    method: str,
    path: str,
    body: bytes | None,
    headers: Mapping[str, str] | None,
    identity: Identity | None,
) -> httpx2.Request:
    # for the transport itself: a client on top of it adds cookies, redirects and a millisecond
    request = httpx2.Request(
        method,
        f"http://mlxnb{path}",
        headers=headers,
        content=body,
        extensions={"timeout": TIMEOUT.as_dict()},
    )
    sent = request.url.raw_path.decode("ascii")
    request.headers.update(sign(record.secret, method, sent, identity or owner()))
    return request


@contextmanager
def _gone(record: HostRecord) -> Iterator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise HostUnreachable(record.title or record.kind, type(error).__name__) from error
    except httpx2.TransportError as error:
        raise HostGone(record.title or record.kind, type(error).__name__) from error


def _json(body: Any) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    return json.dumps(body).encode(), {"Content-Type": "application/json"}


def _parsed(answer: httpx2.Response, content: bytes) -> Any:
    try:
        entry = json.loads(content)
    except ValueError:
        entry = None
    if answer.is_success:
        return entry
    raise HostRefused(answer.status_code, entry)
