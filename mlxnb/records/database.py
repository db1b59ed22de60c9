"""A SQLite file: opened, brought to the present form, and replaced when it is damaged."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from mlxnb.errors import StorageFailed, StorageTimeout

log = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_S = 2.0
"""Seconds that another process's writing is waited for."""


class Database:
    """A SQLite file that this user's processes share. One connection, one thread at a time.

    A damaged file is put aside and a new one begun; one that was deleted is begun anew. Neither
    ends anything but the rows in it.

    Parameters
    ----------
    path
        The file; its folder is made for this user alone.
    migrations
        Statements that bring a file from each version of its schema to the next.
    feature
        What works without the file once it is turned off, for messages.
    """

    def __init__(self, path: Path, migrations: Sequence[str], feature: str = "storing") -> None:
        self.path = path
        self._migrations = migrations
        self._feature = feature
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in a transaction.

        Raises
        ------
        StorageTimeout
            Other threads or processes had it for too long.
        StorageFailed
            It cannot be read or written.
        """
        return self._alone(lambda connection: _within(connection, "BEGIN IMMEDIATE", work))

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in a transaction that only reads: no other process's writing delays it.

        Raises
        ------
        StorageTimeout, StorageFailed
            As ``run``.
        """
        return self._alone(lambda connection: _within(connection, "BEGIN", work))

    def scrub(self) -> None:
        """Write the file anew and empty the log beside it: nothing deleted is in them any more.

        ``secure_delete`` alone leaves what SQLite moved from one page to another [1]_.

        Raises
        ------
        StorageTimeout, StorageFailed
            As ``run``.

        References
        ----------
        .. [1] https://www.sqlite.org/pragma.html#pragma_secure_delete
        """

        def work(connection: sqlite3.Connection) -> bool:
            connection.execute("VACUUM")
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return bool(busy)

        if self._alone(work):
            raise self._busy()

    def _alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if not self._lock.acquire(timeout=BUSY_S):
            raise self._busy()
        try:
            try:
                return work(self._open())
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._put_aside(error)
                return work(self._open())
        except sqlite3.Error as error:
            self._forget()
            raise self._failure(error) from None
        except OSError as error:
            self._forget()
            raise self._failed(error.strerror or str(error)) from None
        finally:
            self._lock.release()

    # --- the file -----------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        """The connection, a new one where the file is not the one that it was."""
        if self._connection is not None and self._file == _identity(self.path):
            return self._connection
        self._forget()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One that is there is not touched: closing it would drop the locks that this process's
        # other connections hold on it.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        self._connection = sqlite3.connect(
            self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        self._file = _identity(self.path)
        _use_log(self._connection)
        for pragma in ("synchronous = NORMAL", "secure_delete = ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        if self._version(self._connection) != len(self._migrations):
            self._migrate(self._connection)
        return self._connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._version(connection)
            if version > len(self._migrations):
                raise self._failed("a newer version of mlxnb has written it")
            for script in self._migrations[version:]:
                for statement in filter(str.strip, script.split(";")):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(self._migrations)}")
        except BaseException:
            connection.rollback()
            self._forget()
            raise
        connection.commit()

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _put_aside(self, error: sqlite3.Error) -> None:
        """Begin anew beside a damaged file, unless another process has done so already."""
        self._forget()
        if self._file != _identity(self.path):
            return
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        log.error("the store %s is damaged (%s); it is now %s", self.path, error, aside.name)
        self.path.rename(aside)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._forget()

    # --- errors -------------------------------------------------------------------------------

    def _failure(self, error: sqlite3.Error) -> Exception:
        if _is_busy(error):
            return self._busy()
        return self._failed(str(error))

    def _busy(self) -> StorageTimeout:
        return StorageTimeout(f"the store {self.path} is busy; try again")

    def _failed(self, reason: str) -> StorageFailed:
        return StorageFailed(
            f"the store {self.path} cannot be used ({reason}); free or repair it, or turn "
            f"{self._feature} off"
        )


def _within(
    connection: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]
) -> T:
    connection.execute(begin)
    try:
        result = work(connection)
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    return result


def _use_log(connection: sqlite3.Connection) -> None:
    """Write ahead into a log. SQLite does not wait for others who set that up at this moment."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() >= until:
                raise
            time.sleep(0.005)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file that is now; None: none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _code(error: sqlite3.Error) -> str:
    """The primary name of SQLite's result, ``SQLITE_BUSY`` for ``SQLITE_BUSY_SNAPSHOT``."""
    name = str(getattr(error, "sqlite_errorname", ""))
    return "_".join(name.split("_")[:2])


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in ("SQLITE_BUSY", "SQLITE_LOCKED")


def _is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in ("SQLITE_CORRUPT", "SQLITE_NOTADB")
