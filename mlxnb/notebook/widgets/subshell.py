"""Where a front end's messages to a widget are handled."""

from __future__ import annotations

from typing import Any


def as_addressed(widget: Any) -> None:
    """Let a widget's messages be handled where the front end has sent them.

    JupyterLab addresses a subshell, so that they do not wait for a running cell. ipykernel hands
    them to where the widget has spoken last instead, which may be the main thread, behind that
    cell; what asks there for an answer in place needs that, and none of ours does.
    """
    if widget.comm is not None:
        widget.comm._reply_subshell_for = None
