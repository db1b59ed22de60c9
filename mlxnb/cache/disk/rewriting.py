"""Shards in place of other shards: compacting and merging."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from mlxnb.cache.disk import rows, shard
from mlxnb.cache.disk.shard import Shard
from mlxnb.cache.disk.stock import Stock, next_merge, stocks, together
from mlxnb.errors import StorageTimeout
from mlxnb.records.database import Database

TRIES = 3
"""How often another process's long transaction is waited for."""


class Rewriter:
    """Writes what is wanted of some shards into new ones. One thread at a time.

    Shards never change. What replaces some is written beside them, then one transaction lets the
    rows point to it, then they are deleted: a process may be killed anywhere, and leaves a file
    too many at worst. Other processes do the same meanwhile: a row is only changed if it is still
    as it was read.

    Parameters
    ----------
    database
        The index; the shards lie beside it.
    batch
        Bytes of a large shard.
    """

    def __init__(self, database: Database, batch: int) -> None:
        self._database, self._batch = database, batch
        self._folder = database.path.parent

    def tidy(self) -> bool:
        """Rewrite some shards that are hollow or small; False: there are none."""
        group = next_merge(self._database.read(stocks).values(), self._batch)
        if group:
            self.join(group)
        return bool(group)

    def compact(self, hollow: Iterable[Stock]) -> None:
        """Rewrite shards of which little is wanted."""
        for group in together(hollow, self._batch):
            self.join(group)

    def join(self, shards: Sequence[Stock]) -> None:
        """Write what is wanted of some shards of a namespace into one, and delete them."""
        names, namespace = [stock.name for stock in shards], shards[0].namespace
        old = {row.id: row for row in self._database.read(lambda c: rows.within(c, names))}
        found = shard.read(self._folder, old.values())
        lost = [row for name, row in old.items() if name not in found]
        if found:
            self._replace(old, shard.write(self._folder, namespace, list(found.values())))
        self._database.run(lambda connection: _remove(connection, namespace, names, lost))
        shard.remove(self._folder, names)

    def _replace(self, old: Mapping[str, rows.Row], new: Shard) -> None:
        moved = self._enter(new, lambda c: rows.move(c, new.namespace, old, new.rows))
        if 0 < moved < len(new.rows):
            # Deleted elsewhere since it was read: its bytes are to be nowhere.
            again = self._database.read(stocks).get(new.name)
            if again is not None:
                self.join([again])

    def add(self, new: Shard) -> None:
        """Make a new shard known, with the rows of what is in it."""
        self._enter(new, lambda c: rows.insert(c, new.namespace, new.rows))

    def _enter(self, new: Shard, work: rows.Work[int]) -> int:
        """Let rows point to a new shard; how many. One that none points to is deleted."""
        count = 0
        try:
            count = self._patiently(partial(_enrol, new, work))
        finally:
            if not count:
                shard.remove(self._folder, [new.name])
        return count

    def _patiently(self, work: rows.Work[int]) -> int:
        for _ in range(TRIES - 1):
            with contextlib.suppress(StorageTimeout):
                return self._database.run(work)
        return self._database.run(work)


def _enrol(new: Shard, work: rows.Work[int], connection: sqlite3.Connection) -> int:
    count = work(connection)
    if count:
        values = (new.name, new.namespace, new.size, new.payload)
        connection.execute("INSERT INTO shards VALUES (?, ?, ?, ?)", values)
    return count


def _remove(
    connection: sqlite3.Connection, namespace: str, names: Iterable[str], lost: list[rows.Row]
) -> None:
    rows.drop(connection, namespace, lost)
    connection.executemany("DELETE FROM shards WHERE name = ?", [(name,) for name in names])
