"""What all routes have in common: ids, credentials, bodies, and errors in the protocol's shape."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any, Literal

from tornado.web import HTTPError, RequestHandler

from mlxnb.host import faults
from mlxnb.host.context import Context
from mlxnb.link.proof import Identity
from mlxnb.wire import errors
from mlxnb.wire.errors import WireError

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_MESSAGES = {404: "there is nothing here"}

Shape = Literal["openai", "anthropic"]


class Route(RequestHandler):
    """A route under ``/mlxnb``.

    Attributes
    ----------
    shape
        How errors are worded; None: as the request's headers tell.
    public
        Whether it answers without credentials too; ``identity`` is None then.
    model
        For the log, once it is known.
    """

    shape: Shape | None = None
    public = False
    model = ""
    identity: Identity | None = None

    def initialize(self, context: Context) -> None:
        """Take what all handlers share."""
        self.context = context

    # --- the request --------------------------------------------------------------------------

    @property
    def request_id(self) -> str:
        """The id of this request (W58): the one that the notebook server gave it, or a new one."""
        if not hasattr(self, "_request_id"):
            given = self.request.headers.get("X-Request-Id", "")
            self._request_id = given if _ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        return self._request_id

    def prepare(self) -> None:
        """Check the caller, and the length of the body."""
        self.context.gate.check(self.request)
        try:
            self.identity = self.context.gate.identify(self.request)
        except WireError:
            if not self.public:
                raise
        limit = self.context.limits.body_bytes
        if len(self.request.body) > limit:
            raise WireError(413, f"the body is larger than {limit:,} bytes")

    @property
    def caller(self) -> Identity:
        """Who asks, on a route that is not public."""
        assert self.identity is not None, "a route that is not public knows its caller"
        return self.identity

    @property
    def is_anthropic(self) -> bool:
        """Whether the caller reads what Anthropic's API says."""
        if self.shape is not None:
            return self.shape == "anthropic"
        return "anthropic-version" in self.request.headers

    # --- the answer ---------------------------------------------------------------------------

    def set_default_headers(self) -> None:
        """Name the request, prove the host, and let nobody keep a copy."""
        self.clear_header("Server")
        self.set_header("X-Request-Id", self.request_id)
        self.set_header("Request-Id", self.request_id)
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Type", "application/json")
        for name, value in self.application.settings["prove"](self.request).items():
            self.set_header(name, value)

    def answer(self, body: Any, status: int = 200) -> None:
        """Send JSON and end."""
        self.set_status(status)
        self.finish(json.dumps(body, ensure_ascii=False, allow_nan=False).encode())

    def compute_etag(self) -> None:
        """No answer of a model is the same as another's."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send an error in the protocol's shape (W2, W3)."""
        _, error, _ = kwargs.get("exc_info", (None, None, None))
        told = self._told(status_code, error)
        self.set_status(told.status)
        for name, value in told.headers.items():
            self.set_header(name, value)
        self.finish(json.dumps(self._worded(told)))

    def _told(self, status: int, error: BaseException | None) -> WireError:
        if error is not None and not isinstance(error, HTTPError):
            return errors.of(error)
        if status == 405:
            allowed = ", ".join(self._methods())
            message = f"{self.request.method} is not allowed here; allowed: {allowed or 'nothing'}"
            return WireError(405, message, headers={"Allow": allowed})
        return WireError(status, _MESSAGES.get(status, "the request is malformed"))

    def _worded(self, error: WireError) -> dict[str, Any]:
        if self.is_anthropic:
            return errors.anthropic_body(error, self.request_id)
        return errors.openai_body(error)

    def _methods(self) -> list[str]:
        """The methods that this route has."""
        return [
            method
            for method in self.SUPPORTED_METHODS
            if getattr(type(self), method.lower()) is not getattr(RequestHandler, method.lower())
        ]

    def log_exception(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Log what is our fault or the machine's; a client's mistake is the client's to know."""
        if isinstance(error, HTTPError) or error is None:
            return
        if errors.of(error).status >= 500:
            faults.report("failed", error, model=self.model, request_id=self.request_id)
