"""A file of SQLite that several connections and processes use."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mlxnb.errors import StorageFailed, StorageTimeout
from mlxnb.records import database
from mlxnb.records.database import Database

TABLE = ("CREATE TABLE words (word TEXT)",)


def add(word: str) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute("INSERT INTO words VALUES (?)", (word,))


def words(connection: sqlite3.Connection) -> list[str]:
    return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY word")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "words.sqlite"


@pytest.fixture
def one(path: Path) -> Iterator[Database]:
    with closing(Database(path, TABLE)) as made:
        yield made


@pytest.fixture
def two(path: Path) -> Iterator[Database]:
    with closing(Database(path, TABLE)) as made:
        yield made


def test_reading_does_not_wait_for_writing(
    one: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.02)
    one.run(add("a"))
    one.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert one.read(words) == ["a"]
        with pytest.raises(StorageTimeout):
            one.run(add("b"))


def test_connections_of_one_process_keep_their_locks(
    one: Database, two: Database, path: Path
) -> None:
    """Else another process that ends takes itself for the last, and deletes the log."""
    one.run(add("a"))
    assert two.read(words) == ["a"]
    script = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute('SELECT * FROM words').fetchall()\n"
        "connection.close()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60)
    assert path.with_name(f"{path.name}-wal").exists()
    two.run(add("b"))
    assert one.read(words) == ["a", "b"]


def test_many_may_begin_a_file_at_once(path: Path) -> None:
    for attempt in range(30):
        made = [Database(path.with_name(f"{attempt}.sqlite"), TABLE) for _ in range(6)]
        together = threading.Barrier(len(made))

        def begin(each: Database, together: threading.Barrier = together) -> None:
            together.wait()
            each.run(add("a"))

        threads = [threading.Thread(target=begin, args=(each,)) for each in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made[0].read(words) == ["a"] * len(made)
        for each in made:
            each.close()


def test_a_damaged_file_is_put_aside_once(one: Database, two: Database, path: Path) -> None:
    for each in (one, two):
        each.run(add("a"))
    one.scrub()
    with path.open("r+b") as file:
        file.write(b"\xff" * 8192)
    for each in (one, two):
        each.close()
    for each in (one, two):
        each.run(add("b"))
    assert one.read(words) == two.read(words) == ["b", "b"]
    assert len(list(path.parent.glob("*.damaged-*"))) == 1


def test_deleted_rows_are_not_left_in_the_log(one: Database, path: Path) -> None:
    one.run(add("xyzzy plugh"))
    one.run(lambda connection: connection.execute("DELETE FROM words"))
    one.scrub()
    assert not any(b"xyzzy" in file.read_bytes() for file in path.parent.iterdir())


def test_deleted_rows_are_not_left_in_the_file(one: Database, path: Path) -> None:
    """Not where SQLite has moved rows between pages either."""
    draw = random.Random(1)
    names = [f"{n} " + "x" * draw.randrange(20, 300) for n in range(1000)]
    secret = [f"plugh {name}" for name in names]

    def fill(connection: sqlite3.Connection) -> None:
        for pair in zip(names, secret, secret, strict=True):
            connection.executemany("INSERT INTO words VALUES (?)", [(word,) for word in pair])

    def delete(connection: sqlite3.Connection) -> None:
        for word in draw.sample(secret, len(secret)):
            connection.execute("DELETE FROM words WHERE word = ?", (word,))

    def left() -> bool:
        return any(b"plugh" in file.read_bytes() for file in path.parent.iterdir())

    one.run(fill)
    one.run(delete)
    one.read(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
    assert left()
    one.scrub()
    assert not left()
    assert one.read(words) == sorted(names)


def test_who_still_reads_deleted_rows_is_waited_for(
    one: Database, two: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    one.run(add("xyzzy"))

    def reading(connection: sqlite3.Connection) -> None:
        assert words(connection) == ["xyzzy"]
        one.run(lambda connection: connection.execute("DELETE FROM words"))
        with pytest.raises(StorageTimeout, match="busy"):
            one.scrub()
        assert words(connection) == ["xyzzy"]

    two.read(reading)
    one.scrub()
    assert not any(b"xyzzy" in file.read_bytes() for file in one.path.parent.iterdir())


def test_messages_name_what_can_be_turned_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = Database(tmp_path / "file" / "words.sqlite", TABLE, "the dictionary")
    with pytest.raises(StorageFailed, match="turn the dictionary off"):
        made.run(words)
