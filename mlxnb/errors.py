"""Every mistake a user can make, as an exception that says what was wrong and what to do.

An invariant of ours is an ``assert``; these are for what comes from outside. The notebook
turns them into one line, the HTTP routes into a status.
"""

from __future__ import annotations

from typing import Any


class MlxnbError(Exception):
    """Base of all errors that mlxnb raises for its users.

    Attributes
    ----------
    param
        The field of a request that is at fault, where it is one.
    """

    param: str | None = None

    def __init__(self, *args: object, param: str | None = None) -> None:
        super().__init__(*args)
        if param is not None:
            self.param = param


# --- options and names ---------------------------------------------------------------------


class InvalidOption(MlxnbError, ValueError):
    """An option has a value that it cannot have; the message names both."""


class BadSchema(InvalidOption):
    """A JSON schema that cannot be enforced; the message names the path in it."""


class NothingLoaded(MlxnbError, LookupError):
    """A turn was asked for and no model is loaded."""


class UnknownSession(MlxnbError, LookupError):
    """No session of that name."""


class SessionExists(MlxnbError, ValueError):
    """A session of that name exists with other options."""


class SessionBusy(MlxnbError, RuntimeError):
    """The session is answering already; one session does one turn at a time."""


class UnknownResponse(MlxnbError, LookupError):
    """No response of that id is stored for this caller; it may have expired."""


class ChainTooLong(MlxnbError, ValueError):
    """A stored response continues more responses than can be walked, or continues itself."""


class UnknownTurn(MlxnbError, LookupError):
    """No turn of that id is in the ledger."""


class UnknownBlock(MlxnbError, LookupError):
    """No block of that id is in the prefix cache."""


# --- models --------------------------------------------------------------------------------


class ModelNotFound(MlxnbError, LookupError):
    """No such model; the message lists near names."""


class ModelBroken(MlxnbError, ValueError):
    """A model's files are there and cannot be used: truncated, altered, a part missing."""


class UnsupportedModel(MlxnbError, ValueError):
    """An architecture, file type or pre-tokenizer that is not supported; lists what is."""


class NetworkUnavailable(MlxnbError, ConnectionError):
    """A download was needed and the network or the hub could not be reached."""


class CacheUnwritable(MlxnbError, OSError):
    """A cache folder cannot be created or written; the message names it and what to set."""


class NotEnoughMemory(MlxnbError, MemoryError):
    """Estimated before reading: the weights do not fit. ``needed`` and ``available`` in bytes."""

    def __init__(self, message: str, needed: int, available: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.available = available


# --- turns ---------------------------------------------------------------------------------


class ContextOverflow(MlxnbError, ValueError):
    """The prompt is longer than the model's context window. Nothing was touched."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"the prompt has {tokens:,} tokens and the model's context window {limit:,}; "
            "shorten it, rewind the session or start a new one"
        )
        self.tokens = tokens
        self.limit = limit


class TemplateFailed(MlxnbError, ValueError):
    """The model's chat template raised; the message is the template's own."""


class PendingToolCalls(MlxnbError, ValueError):
    """The last answer called tools; their results must be sent before anything else."""


class UnknownToolCall(MlxnbError, LookupError):
    """A tool result names a call that is not outstanding."""


class QueueFull(MlxnbError, RuntimeError):
    """As many requests wait for this model as its admission limit allows."""


class BudgetExceeded(MlxnbError, MemoryError):
    """A request's KV does not fit the prefix cache's byte budget, whatever is evicted."""


class ShortOfMemory(BudgetExceeded):
    """A request fits the budget, and the system has no memory to spare for it now; try later."""


class BadLogits(MlxnbError, ArithmeticError):
    """A model gave NaN or infinite logits: weights that are damaged, or out of their type's range.

    Nothing of the KV that led there is kept.
    """


class DetokenizerFailed(MlxnbError, ValueError):
    """A model's tokenizer could not turn tokens into text; ``__cause__`` is its own error."""


class RequestFailed(MlxnbError, RuntimeError):
    """A turn ended in an error; ``__cause__`` is the original one, ``turn`` the partial turn."""

    turn: object | None = None


class ModelUnloaded(MlxnbError, RuntimeError):
    """The model was unloaded, or loaded anew under its name, while this request ran."""


class ModelChanged(ModelUnloaded):
    """The model is another one than this conversation or request began with."""


class EngineDied(MlxnbError, RuntimeError):
    """The engine's thread died or was stuck while this request ran; it has been restarted."""


class EngineClosed(MlxnbError, RuntimeError):
    """The engine was closed by ``close()``; nothing runs on it any more."""


# --- hosts and keys ------------------------------------------------------------------------


class StateUnwritable(MlxnbError, OSError):
    """The directory for records, keys and the store cannot be made or used; says what to set."""


class NotPrivate(MlxnbError, PermissionError):
    """A directory that must be this user's alone belongs to others too; says what to do."""


class ProofFailed(MlxnbError, PermissionError):
    """The other end of a host's socket does not know the host's secret."""


class HostGone(MlxnbError, ConnectionError):
    """A host cannot be reached, or was lost in the midst of an answer."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(
            f"the host {host!r} cannot be reached ({reason}); "
            "load the model again with %mlx_load, or run %mlx_serve in its notebook"
        )


class HostUnreachable(HostGone):
    """A host could not be connected to: it has seen nothing of the request."""


class HostRefused(MlxnbError, RuntimeError):
    """A host answered with an error; ``status`` is HTTP's, ``body`` the answer's JSON."""

    def __init__(self, status: int, body: object) -> None:
        error = body.get("error") if isinstance(body, dict) else None
        message = error.get("message") if isinstance(error, dict) else None
        super().__init__(message or f"the host answered with status {status}")
        self.status = status
        self.body = body


class KeyExists(MlxnbError, ValueError):
    """There is a key of that name already."""


class UnknownKey(MlxnbError, LookupError):
    """No key of that name, or it was not saved; lists what is there."""


class KeysBroken(MlxnbError, ValueError):
    """The file of keys cannot be read; the message names it."""


# --- stores on disk ------------------------------------------------------------------------


class StorageTimeout(MlxnbError, TimeoutError):
    """A response that is being written, or a store itself, was not to be had in time."""


class StorageFailed(MlxnbError, OSError):
    """A store on disk cannot be read or written; the message names it and what to do."""


# --- runs of many turns ----------------------------------------------------------------------


class Unfinished(MlxnbError, RuntimeError):
    """A run cannot go on; ``__cause__`` says why, ``partial`` is the result as far as it came."""

    def __init__(self, reason: str, partial: Any) -> None:
        super().__init__(reason)
        self.partial = partial


class Interrupted(KeyboardInterrupt):
    """An interrupt stopped a run.

    Attributes
    ----------
    partial
        The result as far as it came.
    """

    def __init__(self, done: str, partial: Any) -> None:
        super().__init__(f"{done}; they are in this exception's .partial")
        self.partial = partial
