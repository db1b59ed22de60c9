"""The requests of one model whose prompts are being computed, and whose chunk is the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime


@dataclass(slots=True)
class Place:
    """A place in the queue, and how many tokens newcomers compute that have passed it."""

    request: Request
    passed: float = 0.0


class Prefilling:
    """Gives out whose turn it is; a turn is a chunk, and they go round.

    Newcomers go before those who have had a turn: most are short beside the prompt that is under
    way, and would wait for a whole chunk of it to compute a few tokens of their own. Nobody is
    passed any more after newcomers with as many tokens as a chunk has, and no newcomer by another.

    Parameters
    ----------
    runtime
        Its rate tells how many tokens a chunk has now.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._queue: list[Place] = []

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        return iter([place.request for place in self._queue])

    def begin(self, requests: Iterable[Request]) -> None:
        """Let requests that have been admitted take turns."""
        for request in requests:
            assert request.live is not None, "an admitted request has its live cache"
            chunk = self._runtime.rate.chunk
            place = len(self._queue)
            while place and self._queue[place - 1].passed < chunk:
                place -= 1
                self._queue[place].passed += len(request.tokens) - request.live.length
            self._queue.insert(place, Place(request, math.inf))

    def take(self) -> Request:
        """Take the one out whose turn it is; there must be one."""
        return self._queue.pop(0).request

    def put_back(self, request: Request) -> None:
        """Let a request wait for its next turn."""
        self._queue.append(Place(request))

    def remove(self, request: Request) -> None:
        """Take a request out."""
        self._queue = [place for place in self._queue if place.request is not request]

    def clear(self) -> None:
        """Take all out."""
        self._queue.clear()
