"""Stored responses: rows of SQLite, one file for all hosts of a user."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from pathlib import Path

from mlxnb.records.database import Database
from mlxnb.sessions.serving.row import Row
from mlxnb.sessions.serving.steady import Steady

RETENTION_S = 7 * 24 * 3600.0
"""Seconds that a row is kept unless it says otherwise."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE responses (
        id TEXT PRIMARY KEY,
        previous TEXT,
        owner TEXT NOT NULL,
        salt TEXT NOT NULL,
        model TEXT NOT NULL,
        key TEXT NOT NULL,
        system TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL NOT NULL,
        response TEXT NOT NULL,
        input_items TEXT NOT NULL,
        messages TEXT NOT NULL,
        tokens BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX responses_by_expiry ON responses (expires);
    """,
)
"""Statements that bring a file from each version of the schema to the next."""

_COLUMNS = tuple(field.name for field in dataclasses.fields(Row))
_JSON = ("system", "response", "input_items", "messages")
"""Written as ASCII: halves of surrogate pairs, which clients do send, have no other form."""

_INSERT = (
    f"INSERT OR REPLACE INTO responses ({', '.join(_COLUMNS)})"
    f" VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM responses WHERE id = ? AND owner = ? AND expires > ?"


class Store:
    """Responses by their ids. Any thread may call; what fails raises as `Database.run` does.

    Parameters
    ----------
    path
        The file.
    retention_s
        Seconds that a row is kept where its request does not say.
    """

    def __init__(self, path: Path, retention_s: float = RETENTION_S) -> None:
        self.retention_s = retention_s
        self._steady = Steady()
        self._database = Database(path, MIGRATIONS)

    @property
    def path(self) -> Path:
        """The file."""
        return self._database.path

    def put(self, row: Row) -> None:
        """Write a response."""
        values = [getattr(row, name) for name in _COLUMNS]
        packed = [
            json.dumps(value) if name in _JSON else value
            for name, value in zip(_COLUMNS, values, strict=True)
        ]
        self._database.run(lambda connection: connection.execute(_INSERT, packed))

    def get(self, response_id: str, owner: str) -> Row | None:
        """A response of that owner; None: there is none, or its time has run out."""
        asked = (response_id, owner, time.time())
        found = self._database.run(lambda c: c.execute(_SELECT, asked).fetchone())
        return None if found is None else _row(found)

    def chain(self, response_id: str, owner: str, limit: int) -> list[Row]:
        """A response and those that it continues, newest first: up to ``limit`` and one more.

        It ends before one that is not there, and before one that it holds already.
        """

        def walk(connection: sqlite3.Connection) -> list[Row]:
            rows: dict[str, Row] = {}
            name: str | None = response_id
            while name is not None and name not in rows and len(rows) <= limit:
                found = connection.execute(_SELECT, (name, owner, time.time())).fetchone()
                if found is None:
                    break
                rows[name] = _row(found)
                name = rows[name].previous
            return list(rows.values())

        return self._database.run(walk)

    def delete(self, response_id: str, owner: str) -> bool:
        """Delete a response with all that is kept of it; False: there is none."""
        statement = "DELETE FROM responses WHERE id = ? AND owner = ?"
        asked = (response_id, owner)
        return self._database.run(lambda c: c.execute(statement, asked).rowcount) > 0

    def sweep(self) -> int:
        """Delete what has expired; how many rows that were.

        A clock that is set ahead hides rows until it is set right, and does not delete them.
        """
        statement, now = "DELETE FROM responses WHERE expires <= ?", (self._steady.now(),)
        return self._database.run(lambda connection: connection.execute(statement, now).rowcount)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _row(values: tuple[object, ...]) -> Row:
    named = dict(zip(_COLUMNS, values, strict=True))
    return Row(**{n: json.loads(str(v)) if n in _JSON else v for n, v in named.items()})  # type: ignore[arg-type]
