"""A place where a model waits, so that something can happen in the midst of an answer."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any


class Gate:
    """Lets a scripted model compute ``calls`` times and then waits until it is opened.

    As a context: inside of it the model stands before that call, after it goes on.
    """

    def __init__(self, model: Any, calls: int = 0) -> None:
        self._left = calls
        self._reached = threading.Event()
        self._opened = threading.Event()
        model.on_call = self._pass

    def _pass(self) -> None:
        if self._opened.is_set():
            return
        if self._left > 0:
            self._left -= 1
            return
        self._reached.set()
        assert self._opened.wait(60), "a gate was never opened"

    def wait(self) -> None:
        """Wait until the model stands before it."""
        assert self._reached.wait(60), "a gate was never reached"

    def open(self) -> None:
        """Let the model go on, for good."""
        self._opened.set()

    def __enter__(self) -> Gate:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.open()
