"""Failures in the log: with model and request id, never with what anybody wrote (W44)."""

from __future__ import annotations

import logging
import traceback

from mlxnb.errors import MlxnbError

log = logging.getLogger("mlxnb.host")


def place(error: BaseException) -> str:
    """An error's class and where it was raised; its message may quote a prompt and is left out."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in reversed(frames)
    )
    return f"{type(error).__name__} ({where})" if where else type(error).__name__


def report(kind: str, error: BaseException | None, *, model: str, request_id: str) -> None:
    """Log one failure: ``kind`` says what failed.

    An error that we know is a line's worth of warning; any other is a fault of ours.
    """
    known = error is None or isinstance(error, MlxnbError)
    level = logging.WARNING if known else logging.ERROR
    what = "" if error is None else f": {place(error)}"
    log.log(level, "%s, model %s, request %s%s", kind, model or "unknown", request_id, what)
