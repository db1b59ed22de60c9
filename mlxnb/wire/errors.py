"""Errors as the two vendors' APIs word them: a status, a type, and the field that is at fault.

Importable where there is no mlx: the notebook server answers with the same errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlxnb import errors as ours

TYPES: dict[int, tuple[str, str]] = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("authentication_error", "authentication_error"),
    403: ("permission_error", "permission_error"),
    404: ("not_found_error", "not_found_error"),
    405: ("invalid_request_error", "invalid_request_error"),
    409: ("conflict", "conflict"),
    413: ("request_too_large", "request_too_large"),
    415: ("invalid_request_error", "invalid_request_error"),
    429: ("rate_limit_error", "rate_limit_error"),
    500: ("server_error", "api_error"),
    503: ("server_error", "overloaded_error"),
}
"""Type of each status: OpenAI's, Anthropic's."""


class WireError(Exception):
    """An answer that is an error, before it is worded for one of the protocols.

    Parameters
    ----------
    status
        HTTP status.
    message
        For people: what was wrong and what to do.
    code
        For programs; OpenAI's shape alone carries it.
    param
        The field at fault, as a path: ``input[2].content``.
    type
        OpenAI's type; None: as `TYPES` has it for the status.
    headers
        Sent with the error.
    details
        ``error.details`` of Anthropic's shape.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.type = type or _types(status)[0]
        self.headers = dict(headers or {})
        self.details = dict(details) if details is not None else None


def invalid(message: str, param: str | None = None, code: str = "invalid_value") -> WireError:
    """A request that is wrong: 400."""
    return WireError(400, message, code=code, param=param)


def openai_body(error: WireError) -> dict[str, Any]:
    """The error in OpenAI's shape."""
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }


def anthropic_body(error: WireError, request_id: str | None) -> dict[str, Any]:
    """The error in Anthropic's shape; ``request_id`` as in the headers of the answer."""
    inner: dict[str, Any] = {"type": _types(error.status)[1], "message": error.message}
    if error.details is not None:
        inner["details"] = error.details
    return {"type": "error", "error": inner, "request_id": request_id}


def of(error: BaseException) -> WireError:
    """What an exception is on the wire.

    The messages of mlxnb's own errors are for users. Any other is a fault of ours, and its text
    may quote a prompt: its kind alone is named. The exception is the error's ``__cause__``.
    """
    if isinstance(error, WireError):
        return error
    inner = error.__cause__ if isinstance(error, ours.RequestFailed) else None
    told = _worded(inner or error)
    told.__cause__ = error
    return told


def _worded(error: BaseException) -> WireError:
    if isinstance(error, WireError):
        return error
    if isinstance(error, ours.HostRefused):
        return _passed_on(error)
    if not isinstance(error, ours.MlxnbError):
        return WireError(500, f"the server failed ({type(error).__name__})", code="server_error")
    shape = next(_SHAPES[kind] for kind in type(error).__mro__ if kind in _SHAPES)
    return WireError(
        shape.status,
        str(error),
        code=shape.code,
        param=error.param or shape.param,
        headers=shape.headers,
    )


def _types(status: int) -> tuple[str, str]:
    return TYPES.get(status) or TYPES[400 if 400 <= status < 500 else 500]


def _passed_on(error: ours.HostRefused) -> WireError:
    """A host's own error, as that host worded it."""
    body = error.body if isinstance(error.body, Mapping) else {}
    told = body.get("error")
    inner: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    return WireError(error.status, str(error), code=inner.get("code"), param=inner.get("param"))


@dataclass(frozen=True, slots=True)
class _Shape:
    """What one of our errors is on the wire."""

    status: int
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


_SHAPES: dict[type, _Shape] = {
    ours.MlxnbError: _Shape(500, "server_error"),
    # options, names
    ours.InvalidOption: _Shape(400, "invalid_value"),
    ours.BadSchema: _Shape(400, "invalid_json_schema"),
    ours.NothingLoaded: _Shape(503, "no_model_loaded"),
    ours.UnknownSession: _Shape(404, "session_not_found"),
    ours.SessionExists: _Shape(409, "session_exists"),
    ours.SessionBusy: _Shape(409, "session_busy"),
    ours.UnknownResponse: _Shape(404, "response_not_found"),
    ours.ChainTooLong: _Shape(400, "chain_too_long", "previous_response_id"),
    ours.UnknownTurn: _Shape(404, "turn_not_found"),
    ours.UnknownBlock: _Shape(404, "block_not_found"),
    # models
    ours.ModelNotFound: _Shape(404, "model_not_found", "model"),
    ours.ModelBroken: _Shape(500, "model_broken", "model"),
    ours.UnsupportedModel: _Shape(500, "model_unsupported", "model"),
    ours.NetworkUnavailable: _Shape(503, "network_unavailable"),
    ours.CacheUnwritable: _Shape(500, "server_error"),
    ours.NotEnoughMemory: _Shape(503, "not_enough_memory", "model"),
    # turns
    ours.ContextOverflow: _Shape(400, "context_length_exceeded"),
    ours.TemplateFailed: _Shape(400, "template_failed"),
    ours.PendingToolCalls: _Shape(400, "invalid_tool_history"),
    ours.UnknownToolCall: _Shape(400, "invalid_tool_history"),
    ours.QueueFull: _Shape(429, "queue_full", headers={"Retry-After": "1"}),
    # to a client it is a context that is too long: what helps is a shorter one
    ours.BudgetExceeded: _Shape(400, "context_length_exceeded"),
    # and this one it can send again: the system has no memory for it now
    ours.ShortOfMemory: _Shape(429, "short_of_memory", headers={"Retry-After": "5"}),
    ours.BadLogits: _Shape(500, "bad_logits", "model"),
    ours.DetokenizerFailed: _Shape(500, "detokenizer_failed", "model"),
    ours.RequestFailed: _Shape(500, "server_error"),
    ours.ModelUnloaded: _Shape(409, "model_changed"),
    ours.ModelChanged: _Shape(400, "model_changed", "previous_response_id"),
    ours.EngineDied: _Shape(503, "engine_died"),
    ours.EngineClosed: _Shape(503, "engine_closed"),
    ours.Unfinished: _Shape(500, "server_error"),  # of Python alone: it has what is done
    # hosts, keys
    ours.StateUnwritable: _Shape(500, "server_error"),
    ours.NotPrivate: _Shape(500, "server_error"),
    ours.ProofFailed: _Shape(503, "host_unproven"),
    ours.HostGone: _Shape(503, "host_gone"),
    ours.KeyExists: _Shape(409, "key_exists"),
    ours.UnknownKey: _Shape(404, "key_not_found"),
    ours.KeysBroken: _Shape(500, "server_error"),
    # the store of responses
    ours.StorageTimeout: _Shape(503, "storage_timeout"),
    ours.StorageFailed: _Shape(503, "storage_failed"),
}
