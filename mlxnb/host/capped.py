"""Bodies of any length, of which only so much is kept."""

from __future__ import annotations

from collections.abc import Awaitable

from tornado.httputil import (
    HTTPHeaders,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)


class CappedBody(HTTPMessageDelegate):
    """Passes the first ``limit`` bytes of a body on, and drops the rest.

    Tornado's own limit closes the connection with a bare 400; a client that sends too much is to
    read a 413 with a reason, on a connection that stays in use.
    """

    def __init__(self, handler: HTTPMessageDelegate, limit: int) -> None:
        self._handler = handler
        self._left = limit

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        """See `HTTPMessageDelegate`."""
        return self._handler.headers_received(start_line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Pass on what still fits."""
        kept, self._left = chunk[: self._left], max(0, self._left - len(chunk))
        return self._handler.data_received(kept) if kept else None

    def finish(self) -> None:
        """See `HTTPMessageDelegate`."""
        self._handler.finish()

    def on_connection_close(self) -> None:
        """See `HTTPMessageDelegate`."""
        self._handler.on_connection_close()
