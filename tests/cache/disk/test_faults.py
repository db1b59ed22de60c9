"""Whatever happens to the files, it is a miss at worst: C21, W66."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from mlxnb.cache.disk import shard
from mlxnb.cache.disk.keeper import Keeper
from mlxnb.cache.disk.schema import MIGRATIONS
from mlxnb.cache.disk.tier import INDEX, DiskTier
from mlxnb.records import database

from .conftest import Make
from .world import PATIENCE_S, QUICK, SPACE, chain, ids, plain, shards, write


class Clock:
    """Seconds as a test says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clocked(make: Make, clock: Clock) -> DiskTier:
    return make(clock=clock)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def nospace(*args: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def nospace_below(*args: Any) -> None:
    raise SafetensorError("I/O error: No space left on device (os error 28)")


# --- writing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [nospace, nospace_below])
def test_a_full_disk_turns_writing_off_for_a_while(
    clocked: DiskTier,
    clock: Clock,
    folder: Path,
    fault: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, new = chain("a", 3), chain("b", 3)
    write(clocked, old)
    with monkeypatch.context() as patch:
        patch.setattr(shard, "save_file", fault)
        assert clocked.put(SPACE, new) == 3
        assert not clocked.flush(PATIENCE_S)
        assert clocked.has(SPACE, ids(new)) == 0
        assert clocked.put(SPACE, new) == 0
        assert clocked.dropped == 6
        assert "No space left" in clocked.state
        assert plain(clocked.get(SPACE, ids(old))) == plain(old)
        clock.now += 61
        assert clocked.put(SPACE, new) == 3
        assert not clocked.flush(PATIENCE_S)
    (warning,) = warnings(caplog)
    assert str(folder) in warning and "No space left" in warning
    assert not any(entry.id in caplog.text for entry in new)
    clock.now += 61
    write(clocked, new)
    assert clocked.state == "ok"
    assert len(list(folder.iterdir())) == 5  # two shards, and the index
    monkeypatch.setattr(shard, "save_file", fault)
    clocked.put(SPACE, chain("c", 1))
    assert not clocked.flush(PATIENCE_S)
    assert len(warnings(caplog)) == 2


def test_what_is_to_be_forgotten_is_once_there_is_room_again(
    clocked: DiskTier, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = chain("a", 3)
    write(clocked, entries)
    with monkeypatch.context() as patch:
        patch.setattr(shard, "save_file", nospace)
        clocked.forget(SPACE, ids(entries[2:]))
        assert not clocked.flush(PATIENCE_S)
    assert clocked.has(SPACE, ids(entries)) == 2
    clock.now += 61
    assert clocked.flush(PATIENCE_S)
    assert clocked.has(SPACE, ids(entries)) == 2
    assert [e.id for e in clocked.entries(SPACE)] == ids(entries[:2])


FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cache.disk.world import PATIENCE_S, QUICK, SPACE, chain, ids
from mlxnb.cache.disk.tier import DiskTier
tier = DiskTier(Path(sys.argv[1]), limits=QUICK)
old = chain("a", 3)
tier.put(SPACE, old)
assert tier.flush(PATIENCE_S)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
assert tier.put(SPACE, chain("b", 3, size=100_000)) == 3
assert not tier.flush(PATIENCE_S)
assert tier.state.startswith("off: "), tier.state
assert len(tier.get(SPACE, ids(old))) == 3
tier.close()
"""


def test_a_write_that_really_fails(folder: Path) -> None:
    """The system refuses a file of that size."""
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(folder), tests],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(file.suffix for file in folder.iterdir()) == [".safetensors", ".sqlite"]


@contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """Act as a user whose permissions count; they own the folder."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.iterdir()):
        os.chown(path, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can reach."""
    with tempfile.TemporaryDirectory() as outer:
        os.chmod(outer, 0o755)
        folder = Path(outer) / "kv"
        folder.mkdir(mode=0o700)
        yield folder


def test_a_read_only_folder_is_read_or_missed(
    open_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = chain("a", 2)
    tier = DiskTier(open_folder, limits=QUICK)
    write(tier, entries)
    tier.close()
    with unprivileged(open_folder):
        open_folder.chmod(0o500)
        tier = DiskTier(open_folder, limits=QUICK)
        assert tier.has(SPACE, ids(entries)) in (0, 2)
        assert len(tier.get(SPACE, ids(entries))) in (0, 2)
        tier.put(SPACE, chain("b", 1))
        assert not tier.flush(PATIENCE_S)
        assert tier.state.startswith("off: ")
        assert len(warnings(caplog)) == 1
        open_folder.chmod(0o700)
        tier.close()


def test_a_folder_that_cannot_be_made_turns_it_off(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    tier = DiskTier(tmp_path / "file" / "kv", limits=QUICK, clock=clock)
    entries = chain("a", 2)
    assert tier.has(SPACE, ids(entries)) == 0
    tier.put(SPACE, entries)
    assert not tier.flush(PATIENCE_S)
    assert tier.state.startswith("off: ")
    assert (tier.get(SPACE, ids(entries)), tier.nbytes, tier.noted("a")) == ([], 0, None)
    assert len(warnings(caplog)) == 1
    (tmp_path / "file").unlink()
    clock.now += 61
    write(tier, entries)
    tier.close()


def test_a_fault_of_our_own_ends_nothing(
    clocked: DiskTier,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*args: Any) -> None:
        raise KeyError("contents")

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "write", broken)
        clocked.put(SPACE, chain("a", 1))
        assert not clocked.flush(PATIENCE_S)
    assert clocked.state == "off: KeyError"
    assert "contents" not in caplog.text
    clock.now += 61
    write(clocked, chain("a", 1))


def test_closing_does_not_wait_for_a_disk_that_hangs(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begun = threading.Event(), threading.Event()
    save = shard.save_file

    def hang(*args: Any) -> None:
        begun.set()
        assert go.wait(PATIENCE_S)
        save(*args)

    monkeypatch.setattr(shard, "save_file", hang)
    tier = make(limits=replace(QUICK, close_s=0.01))
    tier.put(SPACE, chain("a", 1))
    assert begun.wait(PATIENCE_S)
    tier.close()
    assert not go.is_set()
    go.set()
    thread = tier._writer._thread
    assert thread is not None
    thread.join(PATIENCE_S)


# --- shards -----------------------------------------------------------------------------------


def delete(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)


def foreign(path: Path) -> None:
    path.write_bytes(b"something else of somebody's " * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE = [delete, truncate, flip, foreign, empty, folder_instead, pipe]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_shard_is_a_miss(
    tier: DiskTier, folder: Path, damage: Callable[[Path], None]
) -> None:
    before, damaged, after = chain("a", 2), chain("a", 2, start=2), chain("a", 2, start=4)
    write(tier, before)
    write(tier, after)
    known = set(shards(folder))
    write(tier, damaged)
    (path,) = set(shards(folder)) - known
    damage(path)
    whole = ids(before + damaged + after)
    found = tier.get(SPACE, whole)
    assert plain(found) == plain((before + damaged)[: len(found)])
    assert 2 <= len(found) < 4
    assert tier.has(SPACE, whole) == len(found)
    assert tier.flush(PATIENCE_S)
    assert tier.has(SPACE, whole) == len(found)
    tier.put(SPACE, damaged)
    assert tier.flush(PATIENCE_S)
    assert plain(tier.get(SPACE, whole)) == plain(before + damaged + after)
    assert tier.state == "ok"


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_shard_is_merged_without_what_is_lost(
    tier: DiskTier, folder: Path, damage: Callable[[Path], None]
) -> None:
    entries = [chain(str(n), 2) for n in range(20)]
    write(tier, entries[0])
    (path,) = shards(folder)
    damage(path)
    for more in entries[1:]:
        write(tier, more)
    wait_for(lambda: len(shards(folder)) < 12)
    assert [len(tier.get(SPACE, ids(more))) for more in entries[1:]] == [2] * 19
    assert len(tier.get(SPACE, ids(entries[0]))) < 2


def wait_for(fact: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_shard_that_cannot_be_opened_just_now_is_kept(
    tier: DiskTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = chain("a", 2)
    write(tier, entries)

    def full(*args: Any) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        assert tier.get(SPACE, ids(entries)) == []
    assert plain(tier.get(SPACE, ids(entries))) == plain(entries)


@pytest.mark.parametrize("name", ["a.safetensors", "a.partial", ".tmpa", f"{INDEX}.damaged-1"])
@pytest.mark.parametrize(("age", "stays"), [(3600, False), (0, True), (-3600, False)])
def test_files_that_nobody_knows_are_swept_when_they_are_old(
    make: Make, folder: Path, name: str, age: int, stays: bool
) -> None:
    """One that is of a time to come was written before the clock was set right."""
    folder.mkdir()
    when = time.time() - age
    for path in (folder / name, folder / "notes.txt"):
        path.write_bytes(b"left behind")
        os.utime(path, (when, when))
    (folder / "mark.damaged-0").write_bytes(b"")
    os.utime(folder / "mark.damaged-0", (0, 0))
    write(make(), chain("a", 1))
    wait_for(lambda: not (folder / "mark.damaged-0").exists())
    assert (folder / name).exists() == stays
    assert (folder / "notes.txt").exists()
    assert len(make().get(SPACE, ids(chain("a", 1)))) == 1


def test_rows_of_a_shard_that_is_gone_are_swept(make: Make, folder: Path) -> None:
    tier, entries = make(), chain("a", 2)
    write(tier, entries)
    tier.close()
    shards(folder)[0].unlink()
    again = make()
    write(again, chain("b", 1))
    wait_for(lambda: again.has(SPACE, ids(entries)) == 0)
    assert again.count == 1


# --- the folder and the index -----------------------------------------------------------------


def test_a_folder_that_is_deleted_is_made_again(
    tier: DiskTier, folder: Path, tmp_path: Path
) -> None:
    """C21"""
    entries = chain("a", 3)
    write(tier, entries)
    folder.rename(tmp_path / "away")  # what deletes file by file may meet a new one
    assert tier.has(SPACE, ids(entries)) == 0
    assert tier.get(SPACE, ids(entries)) == []
    assert (tier.nbytes, tier.count, tier.entries(SPACE)) == (0, 0, [])
    write(tier, entries)
    assert plain(tier.get(SPACE, ids(entries))) == plain(entries)
    assert tier.state == "ok"


def test_an_index_that_is_deleted_is_begun_anew(tier: DiskTier, folder: Path) -> None:
    entries = chain("a", 3)
    write(tier, entries)
    for file in folder.glob(f"{INDEX}*"):
        file.unlink()
    assert tier.has(SPACE, ids(entries)) == 0
    write(tier, entries)
    assert tier.has(SPACE, ids(entries)) == 3
    assert tier.count == 3


def test_an_index_that_another_has_begun_anew_is_read_anew(make: Make, folder: Path) -> None:
    tier, entries = make(), chain("a", 3)
    write(tier, entries)
    assert tier.has(SPACE, ids(entries)) == 3
    tier.close()
    reading, other = make(), make()
    assert reading.has(SPACE, ids(entries)) == 3
    for file in folder.glob(f"{INDEX}*"):
        file.unlink()
    for number in range(5):
        write(other, chain(str(number), 3))
    assert reading.has(SPACE, ids(entries)) == 0
    assert reading.has(SPACE, ids(chain("0", 3))) == 3


@pytest.mark.parametrize("damage", [b"this is no database at all, " * 500, b"SQLite format 3\0bad"])
def test_a_damaged_index_is_put_aside_and_begun_anew(
    make: Make, folder: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """C21"""
    folder.mkdir()
    (folder / INDEX).write_bytes(damage)
    tier, entries = make(), chain("a", 3)
    assert tier.has(SPACE, ids(entries)) == 0
    write(tier, entries)
    assert plain(tier.get(SPACE, ids(entries))) == plain(entries)
    (aside,) = folder.glob("*.damaged-*")
    assert aside.read_bytes() == damage
    assert len(warnings(caplog)) == 1


def test_an_index_damaged_while_it_is_open_is_replaced(tier: DiskTier, folder: Path) -> None:
    for number in range(30):
        write(tier, chain(str(number), 10))
    entries = chain("new", 3)
    with sqlite3.connect(folder / INDEX) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with (folder / INDEX).open("r+b") as file:
        file.write(b"\xff" * 4096 * 20)
    for _ in range(3):
        tier.get(SPACE, ids(chain("0", 10)))
        tier.put(SPACE, entries)
        if tier.flush(PATIENCE_S):
            break
    tier.close()
    again = DiskTier(folder, limits=QUICK)
    again.put(SPACE, entries)
    assert again.flush(PATIENCE_S)
    assert plain(again.get(SPACE, ids(entries))) == plain(entries)
    again.close()


def test_rows_that_make_no_sense_are_misses(tier: DiskTier, folder: Path) -> None:
    entries = chain("a", 3)
    write(tier, entries)
    with sqlite3.connect(folder / INDEX) as connection:
        connection.execute("UPDATE entries SET place = -5 WHERE start = 16")
        connection.execute("UPDATE entries SET shard = '../../x', length = 'y' WHERE start = 32")
    connection.close()
    assert ids(tier.get(SPACE, ids(entries))) == ids(entries[:1])
    assert tier.get(SPACE, ids(entries[2:])) == []
    assert tier.flush(PATIENCE_S)
    write(tier, entries[1:])
    assert plain(tier.get(SPACE, ids(entries))) == plain(entries)


def test_an_index_that_is_locked_costs_what_cannot_be_written(
    clocked: DiskTier,
    clock: Clock,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W25"""
    monkeypatch.setattr(database, "BUSY_S", 0.02)
    old, new = chain("a", 3), chain("b", 3)
    write(clocked, old)
    other = sqlite3.connect(folder / INDEX, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    clocked.put(SPACE, new)
    assert not clocked.flush(PATIENCE_S)
    assert plain(clocked.get(SPACE, ids(old))) == plain(old)
    assert clocked.has(SPACE, ids(new)) == 0
    assert "busy" in clocked.state and len(warnings(caplog)) == 1
    assert len(shards(folder)) == 1
    other.execute("ROLLBACK")
    other.close()
    clock.now += 61
    write(clocked, new)
    assert clocked.state == "ok"


def test_an_index_of_a_newer_version_is_left_alone(
    make: Make, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = chain("a", 3)
    tier = make()
    write(tier, entries)
    tier.close()
    with sqlite3.connect(folder / INDEX) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    newer = make()
    assert newer.has(SPACE, ids(entries)) == 0
    assert "newer version" in newer.state
    assert newer.put(SPACE, chain("b", 1)) == 0
    assert newer.get(SPACE, ids(entries)) == []
    newer.forget(SPACE, ids(entries))
    assert not newer.flush(PATIENCE_S)
    newer.close()
    assert len(warnings(caplog)) == 1
    with sqlite3.connect(folder / INDEX) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (3,)
    connection.close()
    assert len(shards(folder)) == 1
