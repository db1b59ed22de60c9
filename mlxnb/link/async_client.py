"""HTTP to a host over its Unix socket, with proofs both ways; for an event loop.

What a host sends is handed on piece by piece, token by token: this is what the notebook port adds
to each of them, so it is aiohttp's parser, in C, and not httpx's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from string import punctuation
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from mlxnb.errors import HostGone, HostUnreachable
from mlxnb.link.content import CONNECT_S, as_json, parsed, socket_of
from mlxnb.link.proof import Identity, check, owner, sign
from mlxnb.link.record import HostRecord

TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
# A host is sent what it is to see, and nothing of the library's own.
SKIPPED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class AsyncClient:
    """Requests to one host, for one event loop; ``close`` it at the end.

    Cancelling the task of a request closes the request's connection.
    """

    def __init__(self, record: HostRecord) -> None:
        self.record = record
        self._path = socket_of(record)
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        identity: Identity | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """As `mlxnb.link.client.Client.stream`; ``answer.content.iter_any()`` gives the body."""
        # what has an ASCII form goes as it is: aiohttp would change it, and the signature covers it
        url = URL(f"http://mlxnb{quote(path, safe=punctuation)}", encoded=True)
        sent = dict(headers or {})
        sent |= sign(self.record.secret, method, url.raw_path_qs, identity or owner())
        with _gone(self.record):
            answer = await self._opened().request(
                method, url, data=body, headers=sent, allow_redirects=False
            )
            try:
                check(self.record.secret, sent, answer.headers)
                yield answer
            finally:
                answer.close()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """As `mlxnb.link.client.Client.call`."""
        content, headers = as_json(body)
        async with self.stream(method, path, body=content, headers=headers) as answer:
            return parsed(answer.status, await answer.read())

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        """The session, which belongs to the loop that runs when it is first used."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # a connection that is kept may be a dead host's, which a new one would tell
                connector=aiohttp.UnixConnector(self._path, limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=TIMEOUT,
                auto_decompress=False,
                skip_auto_headers=SKIPPED,
            )
        return self._session


@contextmanager
def _gone(record: HostRecord) -> Iterator[None]:
    name = record.title or record.kind
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise HostUnreachable(name, type(error).__name__) from error
    except aiohttp.ClientError as error:
        raise HostGone(name, type(error).__name__) from error
