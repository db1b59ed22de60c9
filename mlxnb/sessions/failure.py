"""How a turn that came to no good is told apart in logs, frames and metrics."""

from __future__ import annotations

from typing import Literal

from mlxnb.errors import EngineClosed, EngineDied, MlxnbError, ModelUnloaded
from mlxnb.records.turn import NOTEBOOK, FinishReason, Source

Kind = Literal["error", "client_abort", "finish_reason_error", "stream_exhausted"]
"""``client_abort``: nobody wanted it any more. ``stream_exhausted``: what computed it is gone.
``finish_reason_error``: its own computation failed. ``error``: anything else, such as a load."""


def kind_of(reason: FinishReason | None, error: Exception | None) -> Kind | None:
    """The kind of a failure; None: it went well."""
    if reason == "cancelled":
        return "client_abort"
    if reason != "error":
        return None
    if isinstance(error, EngineDied | EngineClosed | ModelUnloaded):
        return "stream_exhausted"
    return "error" if isinstance(error, MlxnbError) else "finish_reason_error"


def row_text(source: Source, reason: FinishReason, error: Exception | None) -> str | None:
    """What the row of a turn says of its failure; the kind is named for clients of HTTP alone."""
    told = None if error is None else f"{type(error).__name__}: {error}"
    if source in NOTEBOOK:
        return told
    return ": ".join(filter(None, (kind_of(reason, error), told))) or None
