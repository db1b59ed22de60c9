"""HTTP to a host over its Unix socket, with proofs both ways; blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from mlxnb.errors import HostGone, HostUnreachable
from mlxnb.link.content import CONNECT_S, as_json, parsed, socket_of
from mlxnb.link.proof import Identity, check, owner, sign
from mlxnb.link.record import HostRecord

TIMEOUT = httpx2.Timeout(None, connect=CONNECT_S)
# The host knows how many requests it takes.
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)


class Client:
    """Blocking requests to one host. Any thread may use it; ``close`` it at the end."""

    def __init__(self, record: HostRecord) -> None:
        self.record = record
        self._transport = httpx2.HTTPTransport(uds=socket_of(record), limits=LIMITS)

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
        content, headers = as_json(body)
        with self.stream(method, path, body=content, headers=headers) as answer:
            return parsed(answer.status_code, answer.read())

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()


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
