"""Which entries are on disk, held in memory and kept up with what other processes do."""

from __future__ import annotations

import sqlite3
import threading
import time

from mlxnb.cache.disk.reader import Reader
from mlxnb.cache.disk.schema import KEPT

FAILED = 25
"""How many times longer an index that cannot be read is let alone."""


class Known:
    """Ids by namespace: those that anybody has asked for.

    Parameters
    ----------
    poll_s
        Seconds between two looks at the index.
    """

    def __init__(self, reader: Reader, poll_s: float) -> None:
        self._reader, self._poll_s = reader, poll_s
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        self._ids: dict[str, set[str]] = {}
        self._clock: tuple[str, int] | None = None
        self._next = 0.0

    def ids(self, namespace: str) -> set[str]:
        """The ids of a namespace; the first time they are read from disk."""
        if namespace not in self._ids:
            with self._lock:
                self._wanted.add(namespace)
                self._clock = None
                self._look()
                self._ids.setdefault(namespace, set())
        elif time.monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        return self._ids[namespace]

    def refresh(self) -> None:
        """Look now."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        answered = self._reader.ask(self._catch_up, False)
        broken = not answered and self._reader.there
        if not answered:
            self._clock = None
        if not (answered or broken):
            self._ids = {namespace: set() for namespace in self._wanted}
        self._next = time.monotonic() + self._poll_s * (FAILED if broken else 1)

    def _catch_up(self, connection: sqlite3.Connection) -> bool:
        born, now = connection.execute("SELECT born, now FROM clock").fetchone()
        seen = self._clock[1] if self._clock is not None and self._clock[0] == born else None
        if seen is None or not seen <= now <= seen + KEPT:
            self._read_all(connection)
        elif seen < now:
            self._read_new(connection, seen)
        self._clock = born, now
        return True

    def _read_all(self, connection: sqlite3.Connection) -> None:
        query = "SELECT id FROM entries WHERE namespace = ?"
        for namespace in self._wanted:
            self._ids[namespace] = {name for (name,) in connection.execute(query, (namespace,))}

    def _read_new(self, connection: sqlite3.Connection, seen: int) -> None:
        """What has gone, then what has come: an entry may have come again."""
        for namespace, name in connection.execute(
            "SELECT namespace, id FROM gone WHERE at > ?", (seen,)
        ):
            self._ids.get(namespace, set()).discard(name)
        for namespace, name in connection.execute(
            "SELECT namespace, id FROM entries WHERE added > ?", (seen,)
        ):
            if namespace in self._ids:
                self._ids[namespace].add(name)
