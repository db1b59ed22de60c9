"""What is written now and then rather than at once: when entries were used, and notes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from mlxnb.cache.disk.rows import Key


class Unsaved:
    """Times of use in their order, and notes, that are not in the index yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[Key, float] = {}
        self._notes: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._uses or self._notes)

    def use(self, namespace: str, ids: Sequence[str]) -> None:
        """Entries of a chain have been read; those that others build on count as used last."""
        now = time.time()
        with self._lock:
            for name in reversed(ids):
                self._uses.pop((namespace, name), None)
                self._uses[namespace, name] = now

    def note(self, key: str, value: float) -> None:
        """Keep a number."""
        with self._lock:
            self._notes[key] = value

    def take(self) -> tuple[dict[Key, float], dict[str, float]]:
        """All of it, to be written."""
        with self._lock:
            taken = self._uses, self._notes
            self._uses, self._notes = {}, {}
        return taken

    def give_back(self, uses: Mapping[Key, float], notes: Mapping[str, float]) -> None:
        """What could not be written; what has come since is newer."""
        with self._lock:
            self._uses = {**uses, **self._uses}
            self._notes = {**notes, **self._notes}
