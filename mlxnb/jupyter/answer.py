"""What all answers under ``{base}`` have: ids, headers, and errors in the protocol's shape."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Mapping
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError

from mlxnb.link.patience import WRITE_S, patience
from mlxnb.wire import errors
from mlxnb.wire.errors import WireError

BASE = "mlxnb"


class Answer(JupyterHandler):
    """One request's line to its client; see `passage.Line`."""

    write_timeout_s = WRITE_S

    @property
    def _path(self) -> str:
        """What follows ``{base}``, as it was sent."""
        return self.request.path[len(self.base_url) + len(BASE) :]

    @property
    def request_id(self) -> str:
        """Names this request for the client, the host and the logs (W58)."""
        if not hasattr(self, "_request_id"):
            self._request_id = f"req_{secrets.token_hex(12)}"
        return self._request_id

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Set the status and the headers of the answer."""
        self.set_status(status)
        for name, value in headers.items():
            self.set_header(name, value)
        # what comes goes out though the last is not acknowledged yet, which takes up to 40 ms
        self._connection.stream.set_nodelay(True)

    async def send(self, data: bytes) -> None:
        """Write bytes and wait until the system has them."""
        self.write(data)
        await self._taken(self.flush())

    async def end(self) -> None:
        """End a whole answer."""
        await self._taken(self.finish())

    async def _taken(self, writing: Awaitable[None]) -> None:
        limit = self.write_timeout_s
        with patience(self._connection.stream.close, limit, StreamClosedError):
            await writing

    @property
    def _connection(self) -> HTTP1Connection:
        connection = self.request.connection
        assert isinstance(connection, HTTP1Connection), "Jupyter serves no other"
        return connection

    def destroy(self) -> None:
        """Close the connection."""
        self.detach().close()

    def _answer(self, body: Any, status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(body))

    def set_default_headers(self) -> None:
        """Name the request, and let nobody keep a copy."""
        super().set_default_headers()
        self.set_header("X-Request-Id", self.request_id)
        self.set_header("Request-Id", self.request_id)
        self.set_header("Cache-Control", "no-store")

    def set_cors_headers(self) -> None:
        """None: what a page of another origin sends is refused."""

    def skip_check_origin(self) -> bool:
        """Tokens are no reason to let pages of other origins in."""
        return False

    def compute_etag(self) -> None:
        """No answer of a model is the same as another's."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send an error in the shape of the route's protocol (W3)."""
        _, error, _ = kwargs.get("exc_info", (None, None, None))
        if error is None or isinstance(error, HTTPError):
            told = WireError(status_code, "the request is malformed")
        else:
            told = errors.of(error)
        self.set_status(told.status)
        for name, value in told.headers.items():
            self.set_header(name, value)
        self._answer(self._worded(told), told.status)

    @property
    def _is_anthropic(self) -> bool:
        return "Anthropic-Version" in self.request.headers

    def _worded(self, error: WireError) -> dict[str, Any]:
        if self._path.startswith("/v1/messages") or self._is_anthropic:
            return errors.anthropic_body(error, self.request_id)
        return errors.openai_body(error)

    def log_exception(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Log what is our fault or a host's, without its words, which may be a prompt's (W44)."""
        if error is not None and errors.of(error).status >= 500:
            self.log.warning("mlxnb: %s: %s", self.request_id, type(error).__name__)
