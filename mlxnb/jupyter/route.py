"""The one handler under ``{base}``: lets callers in and passes their requests to hosts."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode

from jupyter_server.auth.decorator import allow_unauthenticated
from tornado.iostream import StreamClosedError
from tornado.web import stream_request_body

from mlxnb import __version__
from mlxnb.jupyter import survey
from mlxnb.jupyter.answer import BASE, Answer
from mlxnb.jupyter.auth import authenticate
from mlxnb.jupyter.choice import Wish
from mlxnb.jupyter.passage import REQUEST_HEADERS, Parcel, Passage
from mlxnb.link import keys
from mlxnb.link.proof import Identity
from mlxnb.link.record import HostRecord
from mlxnb.wire.body import read
from mlxnb.wire.errors import WireError

if TYPE_CHECKING:
    from mlxnb.jupyter.extension import Extension

_RESPONSE = re.compile(r"/v1/responses/(?!input_tokens$)([^/]+)(/.*)?")
_MODEL = re.compile(r"/v1/models/(.+)")
_SECRETS = {"token", "_xsrf"}
_KEY = re.compile(rf"{keys.PREFIX}[\w%-]+")


@stream_request_body
class Route(Answer):
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
        self.write_timeout_s = extension.chosen.write_timeout_s
        self._identity: Identity | None = None
        self._refusal: WireError | None = None
        self._body, self._received = bytearray(), 0
        self._passing: asyncio.Task[None] | None = None
        self._gone = self._parting = False

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
        elif is_look and await self._surveyed():
            return
        else:
            await self._pass_on(self._admitted())

    get = head = post = put = patch = delete = options = any

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
            await self._unless_gone(passage, asyncio.create_task(passage.run(pick)))

    async def _unless_gone(self, passage: Passage, passing: asyncio.Task[None]) -> None:
        """Wait for an answer's end; a client or a server that goes away ends it (W43)."""
        self._passing = passing
        if self._gone:
            passing.cancel()
        try:
            await passing
        except (asyncio.CancelledError, StreamClosedError):
            if self._gone:
                return
            if not self._parting:
                raise
            await passage.break_off(WireError(503, "the notebook server is stopping"))

    def part(self) -> None:
        """End the answer where it is: the notebook server stops.

        Proxies before it, JupyterHub's among them, leave a client waiting for ever whose answer
        only breaks off.
        """
        self._parting = True
        if self._passing is not None:
            self._passing.cancel()

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
        if found := _RESPONSE.fullmatch(self._path):
            return Wish(earlier=(found[1],))
        if found := _MODEL.fullmatch(self._path):
            return self._extension.hosts.having(unquote(found[1]))
        if not self._body:
            return Wish()
        try:
            body = json.loads(self._body)
        except (ValueError, RecursionError):
            body = None
        return Wish.of(body if isinstance(body, dict) else read(bytes(self._body)))

    # --- answers of our own ---------------------------------------------------------------------

    async def _health(self) -> None:
        """The hosts' health; the status alone for who is not known."""
        health = await survey.health(self._extension.hosts)
        told = health if self._identity is not None else {"status": health["status"]}
        self._answer(told, 503 if health["status"] == "error" else 200)

    async def _surveyed(self) -> bool:
        """Answer what all hosts together answer; whether this is of that kind."""
        hosts = self._extension.hosts
        if self._path == "/metrics":
            self.set_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.finish(await survey.metrics(hosts))
        elif self._path == "/v1/models" and not self._is_anthropic and len(hosts.live()) > 1:
            self._answer(await survey.models(hosts))
        else:
            return False
        return True
