"""The index of the shards: its tables, and the clock that all of its processes share."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

KEPT = 100_000
"""Ticks for which it is known what was deleted."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE shards (
        name TEXT PRIMARY KEY,
        namespace TEXT NOT NULL,
        size INTEGER NOT NULL,
        payload INTEGER NOT NULL
    );
    CREATE TABLE entries (
        namespace TEXT NOT NULL,
        id TEXT NOT NULL,
        parent TEXT,
        kind TEXT NOT NULL,
        start INTEGER NOT NULL,
        stop INTEGER NOT NULL,
        tokens BLOB NOT NULL,
        shard TEXT NOT NULL,
        place INTEGER NOT NULL,
        length INTEGER NOT NULL,
        checksum BLOB NOT NULL,
        added INTEGER NOT NULL,
        used INTEGER NOT NULL,
        last_used REAL NOT NULL,
        UNIQUE (namespace, id)
    );
    CREATE INDEX entries_by_parent ON entries (parent);
    CREATE INDEX entries_by_shard ON entries (shard, length);
    CREATE INDEX entries_by_added ON entries (added);
    CREATE INDEX entries_by_used ON entries (used);
    CREATE TABLE gone (at INTEGER PRIMARY KEY, namespace TEXT NOT NULL, id TEXT NOT NULL);
    CREATE TABLE notes (key TEXT PRIMARY KEY, value REAL NOT NULL);
    CREATE TABLE clock (born TEXT NOT NULL, now INTEGER NOT NULL);
    INSERT INTO clock VALUES (lower(hex(randomblob(16))), 0);
    """,
)
"""Statements that bring a file from each version of the schema to the next.

``clock.now`` counts what happens: ``added``, ``used`` and ``gone.at`` are its ticks, so that no
order depends on what time it is anywhere. ``born`` tells one file from its successor.
"""


def ticks(connection: sqlite3.Connection, count: int) -> int:
    """The first of so many new ticks of the clock."""
    connection.execute("UPDATE clock SET now = now + ?", (count,))
    (now,) = connection.execute("SELECT now FROM clock").fetchone()
    return int(now) - count + 1


def delete(connection: sqlite3.Connection, namespace: str, ids: Sequence[str]) -> None:
    """Delete entries, and leave word of it for other processes."""
    first = ticks(connection, len(ids))
    keys = [(namespace, name) for name in ids]
    connection.executemany("DELETE FROM entries WHERE namespace = ? AND id = ?", keys)
    gone = [(tick, *key) for tick, key in enumerate(keys, first)]
    connection.executemany("INSERT INTO gone VALUES (?, ?, ?)", gone)
    connection.execute("DELETE FROM gone WHERE at < ?", (first - KEPT,))
