"""Who may come in: with an mlxnb key, or in any way that Jupyter knows.

A key is good under ``{base}`` alone, since Jupyter never sees it; a token or a cookie of Jupyter's
is looked at by Jupyter's own code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from jupyter_server.auth import User
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import ensure_async
from tornado.httputil import HTTPServerRequest
from tornado.web import HTTPError

from mlxnb.errors import MlxnbError
from mlxnb.link import keys
from mlxnb.link.proof import Identity, owner
from mlxnb.wire.errors import WireError

ACTIONS = {"GET": "read", "HEAD": "read", "DELETE": "write"}
"""As Jupyter's authorizer names them; all else makes a model run."""


async def authenticate(
    handler: JupyterHandler, jupyter: Callable[[], Awaitable[object]]
) -> Identity:
    """Whom a request comes from.

    Parameters
    ----------
    jupyter
        Jupyter's own preparation of the handler, which finds the user and checks for XSRF.

    Raises
    ------
    WireError
        401: no credential, or a wrong one. 403: another site's page, another name of this server,
        a cookie without its XSRF token, or a user who is not authorized.
    """
    if not handler.check_host():
        raise WireError(403, "the server does not answer to this Host; see c.ServerApp")
    key = _key(handler.request)
    identity = _of_key(handler, key) if key else await _of_user(handler, jupyter)
    if not handler.check_origin():
        raise WireError(403, "requests from pages of other origins are refused")
    return identity


def _of_key(handler: JupyterHandler, key: str) -> Identity:
    handler.current_user = None  # it is no user of Jupyter's, and gets no cookie
    try:
        found = keys.check(key)
    except MlxnbError as error:
        handler.log.error("mlxnb keys cannot be checked: %s", error)
        raise WireError(503, "keys cannot be checked; the server's log says why") from None
    if found is None:
        raise _unauthenticated("the key is not known; `mlxnb keys list` shows those that are")
    return Identity(found.name, "key")


async def _of_user(handler: JupyterHandler, jupyter: Callable[[], Awaitable[object]]) -> Identity:
    explicit = _hand_over(handler.request)
    handler.current_user = None
    try:
        await jupyter()
    except HTTPError as error:
        if handler.current_user is None or (explicit and not handler.token_authenticated):
            raise _unauthenticated("the credential is not known, or none was sent") from None
        raise WireError(403, f"with a cookie, send its token as X-XSRFToken: {error}") from None
    user = handler.current_user
    if user is None:
        raise _unauthenticated("send an mlxnb key, as Authorization: Bearer KEY or x-api-key")
    action = ACTIONS.get(handler.request.method or "", "execute")
    if not await ensure_async(handler.authorizer.is_authorized(handler, user, action, "mlxnb")):
        raise WireError(403, f"{user.username} may not {action} mlxnb here")
    return _named(user)


def _named(user: User) -> Identity:
    """The user's name; with a token or a password Jupyter makes one up, for the server's owner."""
    if (user.name or "").startswith("Anonymous "):
        return owner()
    return Identity(user.username, "jupyter")


def _key(request: HTTPServerRequest) -> str | None:
    """The mlxnb key that a request presents."""
    given = (_bearer(request), request.headers.get("X-Api-Key", "").strip())
    return next((text for text in given if text.startswith(keys.PREFIX)), None)


def _bearer(request: HTTPServerRequest) -> str:
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    return value.strip() if scheme.lower() in ("bearer", "token") else ""


def _hand_over(request: HTTPServerRequest) -> bool:
    """Put what Anthropic's clients send where Jupyter looks; whether a credential is presented."""
    given = request.headers.get("X-Api-Key", "").strip()
    if given and "Authorization" not in request.headers:
        request.headers["Authorization"] = f"Bearer {given}"
    return "Authorization" in request.headers or "token=" in request.query


def _unauthenticated(message: str) -> WireError:
    return WireError(401, message, headers={"WWW-Authenticate": 'Bearer realm="mlxnb"'})
