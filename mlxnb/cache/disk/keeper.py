"""What is written to the files: entries, as far as the quota goes, and what is saved lazily."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from mlxnb.cache.disk import rows, shard
from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.rewriting import Rewriter
from mlxnb.cache.disk.stock import HEADER, Stock, evict
from mlxnb.cache.disk.unsaved import Unsaved
from mlxnb.records.database import Database

T = TypeVar("T")

LARGEST_QUOTA = 50 * 10**9
"""Bytes that are used at most unless somebody says otherwise."""


class Keeper:
    """Keeps entries. One thread at a time.

    Parameters
    ----------
    database
        The index.
    quota
        Bytes that the shards may take.
    batch
        Bytes of a shard as it is first written. As much is left free of the quota: shards that
        are merged are twice as large at most, and lie beside the new one for a moment.
    """

    def __init__(
        self,
        database: Database,
        rewriter: Rewriter,
        unsaved: Unsaved,
        quota: int,
        batch: int,
    ) -> None:
        self._database, self._rewriter, self._unsaved = database, rewriter, unsaved
        self._quota, self._batch = quota, batch

    def write(self, namespace: str, entries: Sequence[Entry]) -> None:
        """Write entries of a namespace, once what there is no room for has been evicted."""
        fitting = {entry.id: entry for entry in entries if entry.nbytes <= self._quota}
        for piece in _pieces(fitting.values(), self._batch):
            new, hollow = self._run(partial(self._admit, namespace, piece))
            self._rewriter.compact(hollow)
            if new:
                self._rewriter.add(shard.write(self._database.path.parent, namespace, new))

    def _admit(
        self, namespace: str, entries: Sequence[Entry], connection: sqlite3.Connection
    ) -> tuple[list[Entry], list[Stock]]:
        """Those that are not there yet, once there is room; and the shards to rewrite for it."""
        missing = rows.missing(connection, namespace, [entry.id for entry in entries])
        parents = {entry.parent for entry in entries if entry.parent} - missing
        rows.touch(connection, {(namespace, parent): time.time() for parent in parents})
        new = [entry for entry in entries if entry.id in missing]
        need = sum(entry.nbytes + HEADER for entry in new) + HEADER
        return new, self._make_room(connection, need)

    def _make_room(self, connection: sqlite3.Connection, need: int) -> list[Stock]:
        (used,) = connection.execute("SELECT coalesce(sum(size), 0) FROM shards").fetchone()
        over = used + need + self._batch - self._quota
        return evict(connection, over) if over > 0 else []

    def shrink(self) -> None:
        """Evict what is over the quota."""
        self._rewriter.compact(self._database.run(lambda c: self._make_room(c, 0)))

    def save(self) -> None:
        """Write when entries were used, and the notes."""
        if self._unsaved:
            self._run(lambda connection: None)

    def _run(self, work: rows.Work[T]) -> T:
        """Do something in a transaction, after saving what is unsaved."""
        uses, notes = self._unsaved.take()

        def save_first(connection: sqlite3.Connection) -> T:
            rows.touch(connection, uses)
            connection.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", notes.items())
            return work(connection)

        try:
            return self._database.run(save_first)
        except BaseException:
            self._unsaved.give_back(uses, notes)
            raise


def default_quota(folder: Path) -> int:
    """A tenth of the disk that a folder is on, or will be on; at most `LARGEST_QUOTA`."""
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        return min(shutil.disk_usage(folder).total // 10, LARGEST_QUOTA)
    except OSError:
        return LARGEST_QUOTA


def _pieces(entries: Iterable[Entry], batch: int) -> Iterator[list[Entry]]:
    """Entries in order, some at a time."""
    piece: list[Entry] = []
    total = 0
    for entry in entries:
        piece.append(entry)
        total += entry.nbytes
        if total >= batch:
            yield piece
            piece, total = [], 0
    if piece:
        yield piece
