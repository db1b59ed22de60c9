"""The requests of one model that wait to start, in order of arrival."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from mlxnb.engine.request import Request
from mlxnb.errors import QueueFull

MAX_WAITING = 16
"""Requests of one model that may wait."""


class Waiting:
    """A queue that any thread may put into, and only the engine's thread takes from.

    Parameters
    ----------
    model
        The model's name, for messages.
    unfinished
        Holds every request from its arrival until its end.
    """

    def __init__(self, model: str, unfinished: set[Request]) -> None:
        self.limit = MAX_WAITING
        self._model = model
        self._unfinished = unfinished
        self._lock = threading.Lock()
        self._requests: deque[Request] = deque()
        self._numbers = itertools.count(1)
        self._closed: Exception | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        with self._lock:
            return iter(list(self._requests))

    def put(self, request: Request, limited: bool, accepted: Callable[[], None]) -> None:
        """Add a request; ``accepted`` is called when it is sure to run, before it does.

        Raises
        ------
        QueueFull
            ``limit`` requests wait already (not where ``limited`` is False).
        ModelUnloaded, EngineDied
            The queue is closed: nothing will run any more.
        """
        with self._lock:
            if self._closed is not None:
                raise type(self._closed)(*self._closed.args)
            if limited and len(self._requests) >= self.limit:
                raise QueueFull(
                    f"{self.limit} requests wait for {self._model} already; try again when some "
                    "have finished"
                )
            accepted()
            request.number = next(self._numbers)
            self._unfinished.add(request)
            self._requests.append(request)

    def put_back(self, requests: Iterable[Request]) -> None:
        """Put requests that had started before all others, in the order given."""
        with self._lock:
            self._requests.extendleft(reversed(list(requests)))

    def take(self, request: Request) -> None:
        """Take a request out."""
        with self._lock:
            self._requests.remove(request)

    def close(self, error: Exception) -> None:
        """Take all out, and let nothing in any more: ``put`` raises ``error``."""
        with self._lock:
            self._closed = self._closed or error
            self._requests.clear()
