"""Rows of the index: which entry lies where."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TypeVar

from mlxnb.cache.disk.entry import Entry, Payload
from mlxnb.cache.disk.schema import delete, ticks

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""What is done in a transaction."""
Key = tuple[str, str]
"""A namespace, and an entry's id in it."""


@dataclass(frozen=True, slots=True)
class Row:
    """An entry without its bytes: these are ``length`` bytes at ``place`` in a shard."""

    id: str
    parent: str | None
    kind: str
    start: int
    stop: int
    tokens: bytes
    shard: str
    place: int
    length: int
    checksum: bytes

    @classmethod
    def of(cls, entry: Entry, shard: str, place: int) -> Row:
        """The row of an entry that has been written."""
        return cls(
            entry.id,
            entry.parent,
            entry.kind,
            entry.start,
            entry.end,
            entry.tokens,
            shard,
            place,
            entry.nbytes,
            entry.checksum(),
        )

    def entry(self, data: Payload) -> Entry:
        """The entry, with what was read of it."""
        return Entry(self.id, self.parent, self.kind, self.start, self.stop, self.tokens, data)


_COLUMNS = ", ".join(field.name for field in fields(Row))
_HERE = "namespace = ? AND id = ?"
_STILL = f"{_HERE} AND shard = ? AND place = ?"
_INSERT = (
    f"INSERT OR IGNORE INTO entries ({_COLUMNS}, namespace, added, used, last_used)"
    f" VALUES ({', '.join('?' * (len(fields(Row)) + 4))})"
)


def find(connection: sqlite3.Connection, namespace: str, ids: Iterable[str]) -> dict[str, Row]:
    """The rows of those ids that are there."""
    query = f"SELECT {_COLUMNS} FROM entries WHERE {_HERE}"
    found = (connection.execute(query, (namespace, name)).fetchone() for name in ids)
    return {values[0]: Row(*values) for values in found if values is not None}


def missing(connection: sqlite3.Connection, namespace: str, ids: Iterable[str]) -> set[str]:
    """Those of the ids that are not there."""
    query = f"SELECT 1 FROM entries WHERE {_HERE}"
    return {name for name in ids if connection.execute(query, (namespace, name)).fetchone() is None}


def within(connection: sqlite3.Connection, shards: Iterable[str]) -> list[Row]:
    """The rows of what lies in these shards."""
    query = f"SELECT {_COLUMNS} FROM entries WHERE shard = ?"
    return [Row(*values) for name in shards for values in connection.execute(query, (name,))]


def insert(connection: sqlite3.Connection, namespace: str, rows: Sequence[Row]) -> int:
    """Add rows; how many: one that another process has added meanwhile stays.

    They count as used from the last to the first, so that what others build on goes last.
    """
    first, now = ticks(connection, len(rows)), time.time()
    values = (
        (*astuple(row), namespace, tick, tick, now)
        for tick, row in enumerate(reversed(rows), first)
    )
    return connection.executemany(_INSERT, values).rowcount


def move(
    connection: sqlite3.Connection, namespace: str, old: Mapping[str, Row], new: Iterable[Row]
) -> int:
    """Let rows point to where their bytes lie now; how many still lay where they were."""
    places = (
        (row.shard, row.place, namespace, row.id, old[row.id].shard, old[row.id].place)
        for row in new
    )
    update = f"UPDATE entries SET shard = ?, place = ? WHERE {_STILL}"
    return connection.executemany(update, places).rowcount


def drop(connection: sqlite3.Connection, namespace: str, rows: Iterable[Row]) -> None:
    """Delete rows whose bytes are damaged or gone, unless these lie elsewhere by now."""
    query = f"SELECT id FROM entries WHERE {_STILL}"
    asked = ((namespace, row.id, row.shard, row.place) for row in rows)
    still = [found for key in asked for (found,) in connection.execute(query, key).fetchall()]
    delete(connection, namespace, still)


def touch(connection: sqlite3.Connection, uses: Mapping[Key, float]) -> None:
    """Write when entries were used: in order, the last one last, with the time for display."""
    first = ticks(connection, len(uses))
    values = ((tick, when, *key) for tick, (key, when) in enumerate(uses.items(), first))
    update = f"UPDATE entries SET used = ?, last_used = ? WHERE {_HERE}"
    connection.executemany(update, values)


def forget(connection: sqlite3.Connection, namespace: str, ids: Sequence[str]) -> None:
    """Delete entries, last one first, up to one that another entry builds on."""
    query = "SELECT 1 FROM entries WHERE parent = ? AND namespace = ? AND id != ?"
    for name in reversed(ids):
        if connection.execute(query, (name, namespace, name)).fetchone() is not None:
            return
        delete(connection, namespace, [name])
