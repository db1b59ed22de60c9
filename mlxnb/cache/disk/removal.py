"""What is deleted from the files, because somebody wants it or because it is of no use."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Sequence

from mlxnb.cache.disk import rows, shard
from mlxnb.cache.disk.rewriting import Rewriter
from mlxnb.cache.disk.schema import KEPT, ticks
from mlxnb.cache.disk.stock import Stock, stocks
from mlxnb.errors import StorageTimeout
from mlxnb.records.database import Database


class Remover:
    """Deletes rows, and the bytes with them. One thread at a time.

    Attributes
    ----------
    unclean
        Whether what was deleted may still be read in the index: others were using it.
    """

    def __init__(self, database: Database, rewriter: Rewriter) -> None:
        self._database, self._rewriter = database, rewriter
        self._folder = database.path.parent
        self.unclean = False

    def drop(self, namespace: str, lost: Sequence[rows.Row]) -> None:
        """Delete rows whose bytes are damaged or gone."""
        self._database.run(lambda connection: rows.drop(connection, namespace, lost))

    def forget(self, namespace: str, ids: Sequence[str]) -> None:
        """Delete entries, row and bytes, last one first, up to one that another builds on.

        Bytes of those that were evicted before may still lie in a shard: they go too.
        """
        self._database.run(lambda connection: rows.forget(connection, namespace, ids))
        gone = self._database.read(lambda connection: rows.missing(connection, namespace, ids))
        for stock in self._database.read(stocks).values():
            partly = stock.namespace == namespace and stock.live < stock.payload
            if stock.count == 0 or (partly and self._holds(stock, gone)):
                self._rewriter.join([stock])
        self.scrub()

    def _holds(self, stock: Stock, ids: set[str]) -> bool:
        """Whether bytes of these entries are in a shard; True for one that is no shard."""
        try:
            return not ids.isdisjoint(shard.read_places(shard.path_of(self._folder, stock.name)))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return True

    def clear(self, namespace: str | None) -> None:
        """Delete everything, or everything of a namespace."""
        names = self._database.run(lambda connection: _clear(connection, namespace))
        shard.remove(self._folder, names)
        if namespace is None:
            self._sweep_files(0.0)
        self.scrub()

    def scrub(self) -> None:
        """See that nothing deleted is in the index any more, if others let it be done now."""
        self.unclean = True
        with contextlib.suppress(StorageTimeout):
            self._database.scrub()
            self.unclean = False

    def sweep(self, age: float) -> None:
        """Delete files of that age that no row knows, and rows whose file is gone."""
        self._sweep_files(age)
        for stock in self._database.read(stocks).values():
            if not shard.path_of(self._folder, stock.name).exists():
                self._rewriter.join([stock])
        with contextlib.suppress(OSError):
            self._folder.chmod(0o700)

    def _sweep_files(self, age: float) -> None:
        known, now = self._database.read(stocks), time.time()
        for pattern in shard.LEFT_BEHIND:
            for file in self._folder.glob(pattern):
                with contextlib.suppress(OSError):
                    # Either way: the clock may have been ahead when it was written.
                    if file.stem not in known and abs(now - file.stat().st_mtime) >= age:
                        file.unlink()


def _clear(connection: sqlite3.Connection, namespace: str | None) -> list[str]:
    where = "WHERE ? IS NULL OR namespace = ?"
    asked = (namespace, namespace)
    names = [name for (name,) in connection.execute(f"SELECT name FROM shards {where}", asked)]
    for table in ("entries", "shards"):
        connection.execute(f"DELETE FROM {table} {where}", asked)
    ticks(connection, KEPT + 1)  # so that other processes read all of it anew
    return names
