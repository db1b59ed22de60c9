"""Engines that end under a widget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxnb.errors import EngineClosed, HostGone

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine


def gone(engine: Engine) -> bool:
    """Whether an engine was closed, or its host cannot be reached."""
    if engine.closed:
        return True
    try:
        engine.models()
    except (EngineClosed, HostGone):
        return True
    return False
