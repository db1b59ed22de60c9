"""The one handler under ``{base}``: lets callers in and passes their requests to hosts."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import JupyterHandler
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, stream_request_body

from mlxnb import __version__
from mlxnb.jupyter.auth import authenticate
from mlxnb.jupyter.choice import Wish
from mlxnb.jupyter.passage import REQUEST_HEADERS, Parcel, Passage
from mlxnb.link import keys
from mlxnb.link.proof import Identity
from mlxnb.link.record import HostRecord
from mlxnb.wire import errors
from mlxnb.wire.body import read
from mlxnb.wire.errors import WireError

if TYPE_CHECKING:
    from mlxnb.jupyter.extension import Extension

BASE = "mlxnb"
_RESPONSE = re.compile(r"/v1/responses/([^/]+)(/.*)?")
_SECRETS = {"token", "_xsrf"}
_KEY = re.compile(rf"{keys.PREFIX}[\w%-]+")


@stream_request_body
class Route(JupyterHandler):
    """Every method of every path: `authenticate` first, then the way to a host.

    No path is open but ``health``, which tells strangers a status alone (W4).
    """

    def initialize(self, extension: Extension) -> None:
        """Take what the handlers of one server share."""
        # so that tornado never compresses what is passed on: clients get each event as it comes
        self.request.headers.pop("Accept-Encoding", None)
        # Jupyter's access log shows it; nothing else reads it
        self.request.uri = _KEY.sub("[secret]", self.request.uri or "")
        self._extension = extension
        self._identity: Identity | None = None
        self._refusal: WireError | None = None
        self._body, self._received = bytearray(), 0
        self._passing: asyncio.Task[None] | None = None
        self._gone = False

    # --- who asks, and what --------------------------------------------------------------------

    async def prepare(self) -> None:  # type: ignore[override]
        """Find out who asks before any of the body is read."""
        try:
            self._identity = await authenticate(self, lambda: super(Route, self).prepare())
        except WireError as error:
            self._refusal = error

    def data_received(self, chunk: bytes) -> None:
        """Keep a piece of the body. What is not wanted is read all the same, and dropped.

        A connection that is closed on a client that still sends may take the answer with it.
        """
        self._received += len(chunk)
        if self._refusal is None and self._received <= self._extension.chosen.body_limit_bytes:
            self._body += chunk

    @allow_unauthenticated  # by Jupyter; `prepare` has authenticated
    async def any(self) -> None:
        """Answer a request of whatever method."""
        self._check_length()
        is_look = self.request.method in ("GET", "HEAD")
        stranger = self._refusal is not None and self._refusal.status == 401
        if self._path == "/health" and is_look and (stranger or self._refusal is None):
            await self._health()
        elif self._refusal is not None:
            raise self._refusal
        elif is_look and self._path in ("", "/", "/v1", "/v1/"):
            self._answer({"object": "mlxnb", "version": __version__})
        else:
            await self._pass_on(self._admitted())

    get = head = post = put = patch = delete = options = any

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

    def _check_length(self) -> None:
        limit = self._extension.chosen.body_limit_bytes
        if self._refusal is None and self._received > limit:
            self._refusal = WireError(413, f"the body may have {limit:,} bytes, and is longer")

    def _admitted(self) -> Identity:
        """Who asks. Raises `WireError` with status 403 where a key does not open the door."""
        assert self._identity is not None, "who is not refused is known"
        is_control = self._path == "/api" or self._path.startswith("/api/")
        if is_control and self._identity.kind != "jupyter":
            raise WireError(403, "an mlxnb key does not open the control routes")
        return self._identity

    # --- to a host and back --------------------------------------------------------------------

    async def _pass_on(self, identity: Identity) -> None:
        passage = Passage(
            self._parcel(identity), self, self._extension.hosts.client, self._extension.touch
        )
        wish = self._wish()

        async def pick(without: frozenset[str]) -> HostRecord:
            named = self.get_query_argument("host", "") if self._path.startswith("/api/") else ""
            hosts = self._extension.hosts
            return await (hosts.named(named) if named else hosts.choose(wish, without))

        with self._extension.passing(self):
            await self._unless_gone(asyncio.create_task(passage.run(pick)))

    async def _unless_gone(self, passing: asyncio.Task[None]) -> None:
        """Wait for an answer's end; a client that goes away ends it (W43)."""
        self._passing = passing
        if self._gone:
            passing.cancel()
        try:
            await passing
        except (asyncio.CancelledError, StreamClosedError):
            if not self._gone:
                raise

    def on_connection_close(self) -> None:
        """Stop the host's work, whatever it is at."""
        super().on_connection_close()
        self._gone = True
        if self._passing is not None:
            self._passing.cancel()

    def _parcel(self, identity: Identity) -> Parcel:
        given = self.request.headers
        headers = {name: given[name] for name in REQUEST_HEADERS if name in given}
        query = urlencode(
            [
                (name, value)
                for name, value in parse_qsl(self.request.query, keep_blank_values=True)
                if name not in _SECRETS
            ]
        )
        return Parcel(
            method=self.request.method or "GET",
            path=f"/{BASE}{self._path}" + (f"?{query}" if query else ""),
            headers={**headers, "Accept-Encoding": "identity", "X-Request-Id": self.request_id},
            body=bytes(self._body) or None,
            identity=identity,
            request_id=self.request_id,
        )

    def _wish(self) -> Wish:
        """What of this request decides who answers it.

        Raises
        ------
        WireError
            400: the body is no JSON object. No host is started to say so.
        """
        found = _RESPONSE.fullmatch(self._path)
        if found:
            return Wish(earlier=(found[1],))
        if not self._body:
            return Wish()
        try:
            body = json.loads(self._body)
        except (ValueError, RecursionError):
            body = None
        return Wish.of(body if isinstance(body, dict) else read(bytes(self._body)))

    # --- the line, see `passage.Line` ----------------------------------------------------------

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Set the status and the headers of the answer."""
        self.set_status(status)
        for name, value in headers.items():
            self.set_header(name, value)

    async def send(self, data: bytes) -> None:
        """Write bytes and wait until the system has them."""
        self.write(data)
        await self.flush()

    async def end(self) -> None:
        """End a whole answer."""
        await self.finish()

    def destroy(self) -> None:
        """Close the connection."""
        self.detach().close()

    # --- answers of our own ---------------------------------------------------------------------

    async def _health(self) -> None:
        """The hosts' health; the status alone for who is not known."""
        health = await self._extension.hosts.health()
        told = health if self._identity is not None else {"status": health["status"]}
        self._answer(told, 503 if health["status"] == "error" else 200)

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

    def _worded(self, error: WireError) -> dict[str, Any]:
        if self._path.startswith("/v1/messages") or "Anthropic-Version" in self.request.headers:
            return errors.anthropic_body(error, self.request_id)
        return errors.openai_body(error)

    def log_exception(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Log what is our fault or a host's, without its words, which may be a prompt's (W44)."""
        if error is not None and errors.of(error).status >= 500:
            self.log.warning("mlxnb: %s: %s", self.request_id, type(error).__name__)
