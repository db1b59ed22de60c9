"""How long a client may take nothing of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WRITE_S = 600.0
"""Seconds after which a client that takes nothing is given up; a debugger's break is shorter."""


@contextmanager
def patience(close: Callable[[], None], seconds: float, gone: type[Exception]) -> Iterator[None]:
    """Close a connection that what is done in the context waits for longer than that.

    Without it a client that has stopped reading, and not gone, would hold its request for ever.

    Raises
    ------
    gone
        It was closed.
    """
    closed = False

    def give_up() -> None:
        nonlocal closed
        closed = True
        close()

    timer = asyncio.get_running_loop().call_later(seconds, give_up)
    try:
        yield
    finally:
        timer.cancel()
    if closed:
        raise gone
