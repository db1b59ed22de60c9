"""Live sessions: responses that can be continued without the store, by their ids."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from mlxnb.sessions.serving.chain import Chain


@dataclass(slots=True)
class _Entry:
    owner: str
    chain: Chain
    nbytes: int
    used: float


class Warm:
    """Chains by the ids of their last responses; the one used least recently goes first.

    A chain never changes, so that any number of requests may continue one at a time.

    Parameters
    ----------
    count, nbytes, seconds
        How many are kept, how many bytes their tokens take, and for how long after their last
        use.
    """

    def __init__(self, count: int, nbytes: int, seconds: float) -> None:
        self._count, self._nbytes, self._seconds = count, nbytes, seconds
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._held = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, response_id: str, owner: str, chain: Chain) -> None:
        """Keep a response."""
        size = chain.track.nbytes if chain.track is not None else 0
        with self._lock:
            self._drop(response_id)
            self._entries[response_id] = _Entry(owner, chain, size, time.monotonic())
            self._held += size
            self._trim()

    def get(self, response_id: str, owner: str) -> Chain | None:
        """The chain that ends in a response of that owner; None: it is not live."""
        with self._lock:
            self._trim()
            entry = self._entries.get(response_id)
            if entry is None or entry.owner != owner:
                return None
            entry.used = time.monotonic()
            self._entries.move_to_end(response_id)
            return entry.chain

    def drop(self, response_id: str, owner: str) -> bool:
        """Forget a response; False: it is not live, or another's."""
        with self._lock:
            entry = self._entries.get(response_id)
            if entry is None or entry.owner != owner:
                return False
            self._drop(response_id)
            return True

    def _trim(self) -> None:
        oldest = time.monotonic() - self._seconds
        while self._entries:
            name, entry = next(iter(self._entries.items()))
            full = len(self._entries) > self._count or self._held > self._nbytes
            if not full and entry.used > oldest:
                break
            self._drop(name)

    def _drop(self, response_id: str) -> None:
        entry = self._entries.pop(response_id, None)
        if entry is not None:
            self._held -= entry.nbytes
