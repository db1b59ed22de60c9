"""Who may come in: by a signature on the Unix socket, by a key or a token on a loopback port."""

from __future__ import annotations

import hmac
from typing import Protocol

from tornado.httputil import HTTPHeaders, HTTPServerRequest, split_host_and_port

from mlxnb.errors import ProofFailed
from mlxnb.link import keys, proof
from mlxnb.link.proof import Identity
from mlxnb.wire.errors import WireError

LOOPBACK = ("127.0.0.1", "::1", "[::1]", "localhost")


class Gate(Protocol):
    """Authenticates the requests of one listening socket."""

    def check(self, request: HTTPServerRequest) -> None:
        """Refuse what may not even ask without credentials. Raises `WireError`."""

    def identify(self, request: HTTPServerRequest) -> Identity:
        """Whom a request comes from; `WireError` with status 401 if it cannot tell."""

    def proof(self, request: HTTPServerRequest) -> dict[str, str]:
        """Headers of the answer by which the host proves itself."""


class SocketGate:
    """The gate of the Unix socket: callers sign with the secret of the host's record (W62, W63)."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def check(self, request: HTTPServerRequest) -> None:
        """See `Gate.check`: only the signature counts."""

    def identify(self, request: HTTPServerRequest) -> Identity:
        """See `Gate.identify`."""
        method, path = request.method or "", request.uri or ""
        try:
            return proof.verify(self._secret, request.headers, method, path)
        except ProofFailed as error:
            raise unauthenticated(str(error)) from error

    def proof(self, request: HTTPServerRequest) -> dict[str, str]:
        """See `Gate.proof`."""
        return {proof.PROOF: proof.prove(self._secret, request.headers)}


class PortGate:
    """The gate of a loopback port (W64): an mlxnb key or the host's own token, as a header.

    A page of a browser reaches loopback ports too, so requests that come from a page of another
    origin, or for another name of this address, are refused before anything else.
    """

    def __init__(self, token: str) -> None:
        self._token = token

    def check(self, request: HTTPServerRequest) -> None:
        """See `Gate.check`."""
        headers = request.headers
        name, _ = split_host_and_port(headers.get("Host", "").lower())
        if name not in LOOPBACK:
            raise refused("this port answers to the hosts 127.0.0.1, ::1 and localhost alone")
        if headers.get("Origin", f"http://{headers['Host']}") != f"http://{headers['Host']}":
            raise refused("requests from other origins are refused")
        if headers.get("Sec-Fetch-Site", "none") == "cross-site":
            raise refused("cross-site requests are refused")
        if request.method in ("POST", "PUT", "PATCH") and not _is_json(headers):
            raise WireError(415, "send the body with Content-Type: application/json")

    def identify(self, request: HTTPServerRequest) -> Identity:
        """See `Gate.identify`."""
        given = _credential(request)
        if given is None:
            raise unauthenticated("send an mlxnb key, as Authorization: Bearer KEY or x-api-key")
        if hmac.compare_digest(given.encode(), self._token.encode()):
            return proof.owner()
        key = keys.check(given)
        if key is None:
            raise unauthenticated("the key is not known; `mlxnb keys list` shows those that are")
        return Identity(key.name, "key")

    def proof(self, request: HTTPServerRequest) -> dict[str, str]:
        """See `Gate.proof`: clients of a port do not ask for one."""
        return {}


def _credential(request: HTTPServerRequest) -> str | None:
    """The key or token that a request presents."""
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "token") and value.strip():
        return value.strip()
    return request.headers.get("x-api-key") or None


def _is_json(headers: HTTPHeaders) -> bool:
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return kind == "application/json"


def unauthenticated(message: str) -> WireError:
    """A 401."""
    return WireError(401, message)


def refused(message: str) -> WireError:
    """A 403."""
    return WireError(403, message)
