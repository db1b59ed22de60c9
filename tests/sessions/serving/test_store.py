"""The store: W8, W23, W25, W66, C21."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlxnb.errors import ChainTooLong, StorageFailed, StorageTimeout, UnknownResponse
from mlxnb.records import database
from mlxnb.records.database import Database
from mlxnb.sessions.serving import filing
from mlxnb.sessions.serving.chain import of_rows
from mlxnb.sessions.serving.limits import Limits
from mlxnb.sessions.serving.row import Row
from mlxnb.sessions.serving.store import MIGRATIONS, Store

from .world import World

Talker = Callable[..., str]


def row(name: str, previous: str | None = None, **options: Any) -> Row:
    given: dict[str, Any] = {
        "owner": "ada",
        "salt": "",
        "model": "m",
        "key": "k",
        "system": None,
        "created": time.time(),
        "expires": time.time() + 1000,
        "response": {"id": name, "output": [{"é": "😀 and half of one: \ud83d"}]},
        "input_items": [{"type": "message"}],
        "messages": [{"role": "user", "content": "hi"}],
        "tokens": b"\0\1",
        **options,
    }
    return Row(id=name, previous=previous, **given)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "responses.sqlite"


@pytest.fixture
def store(path: Path) -> Any:
    made = Store(path)
    yield made
    made.close()


# --- rows -------------------------------------------------------------------------------------


def test_a_row_comes_back_as_it_was(store: Store) -> None:
    stored = row("a", system="Be.", salt="s")
    store.put(stored)
    assert store.get("a", "ada") == stored
    assert store.get("a", "bob") is None


def test_hosts_of_a_user_share_it(store: Store, path: Path) -> None:
    """W25"""
    other = Store(path)
    store.put(row("a"))
    assert other.get("a", "ada") is not None
    assert other.delete("a", "ada")
    assert store.get("a", "ada") is None
    other.close()


def test_what_has_expired_is_not_there_and_is_swept(store: Store, path: Path) -> None:
    store.put(row("old", expires=time.time() - 1))
    store.put(row("new"))
    assert store.get("old", "ada") is None
    assert store.sweep() == 1
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT id FROM responses").fetchall() == [("new",)]
    connection.close()


def test_a_chain_is_walked_to_its_root(store: Store) -> None:
    for name, previous in (("a", None), ("b", "a"), ("c", "b")):
        store.put(row(name, previous))
    assert [r.id for r in store.chain("c", "ada", 100)] == ["c", "b", "a"]
    assert [r.id for r in store.chain("c", "ada", 1)] == ["c", "b"]
    assert store.chain("c", "bob", 100) == []


def test_a_cycle_is_refused(store: Store) -> None:
    """W24"""
    for name, previous in (("a", "b"), ("b", "a")):
        store.put(row(name, previous, tokens=b""))
    with pytest.raises(ChainTooLong, match="itself"):
        of_rows(store.chain("a", "ada", 100))


def test_the_store_is_its_users_alone(store: Store, path: Path) -> None:
    """W66"""
    old = os.umask(0)
    try:
        store.put(row("a"))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    files = list(path.parent.iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_deleted_text_is_not_left_in_the_file(store: Store, path: Path) -> None:
    """W66"""
    store.put(row("a", messages=[{"role": "user", "content": "xyzzy plugh " * 50}]))
    store.delete("a", "ada")
    store.close()
    assert b"xyzzy" not in path.read_bytes()


# --- the file ---------------------------------------------------------------------------------


def test_an_older_file_is_brought_to_the_present_form(path: Path) -> None:
    path.parent.mkdir()
    older = Database(path, MIGRATIONS)
    older.run(lambda c: c.execute("SELECT 1").fetchone())
    older.close()
    newer = Database(path, (*MIGRATIONS, "ALTER TABLE responses ADD COLUMN more TEXT; SELECT 1"))
    newer.run(lambda c: c.execute("SELECT more FROM responses").fetchall())
    newer.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    connection.close()


def test_a_newer_file_is_left_alone(store: Store, path: Path) -> None:
    store.put(row("a"))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StorageFailed, match="newer version"):
        store.put(row("b"))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM responses").fetchone() == (1,)
    connection.close()


def test_a_migration_that_fails_changes_nothing(store: Store, path: Path) -> None:
    store.put(row("a"))
    broken = Database(path, (*MIGRATIONS, "CREATE TABLE half (x); NONSENSE"))
    with pytest.raises(StorageFailed):
        broken.run(lambda c: None)
    broken.close()
    assert store.get("a", "ada") is not None


@pytest.mark.parametrize("damage", [b"this is no database at all, " * 500, b"SQLite format 3\0bad"])
def test_a_damaged_file_is_put_aside_and_begun_anew(
    path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """C21"""
    path.parent.mkdir()
    path.write_bytes(damage)
    store = Store(path)
    store.put(row("a"))
    assert store.get("a", "ada") is not None
    (aside,) = path.parent.glob("*.damaged-*")
    assert aside.read_bytes() == damage
    assert "damaged" in caplog.text
    store.close()


def test_a_file_damaged_while_it_is_open_is_replaced(store: Store, path: Path) -> None:
    for number in range(200):
        store.put(row(str(number)))
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096 * 8)
    store.put(row("new"))
    assert store.get("new", "ada") is not None


def test_a_deleted_folder_is_made_again(store: Store, path: Path) -> None:
    """C21"""
    store.put(row("a"))
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    store.put(row("b"))
    assert store.get("b", "ada") is not None and store.get("a", "ada") is None


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "responses.sqlite")
    with pytest.raises(StorageFailed, match="turn storing off"):
        store.put(row("a"))


def test_a_store_that_is_held_by_another_is_a_timeout(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W25"""
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    store.put(row("a"))
    store.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageTimeout):
        store.put(row("b"))
    other.execute("ROLLBACK")
    other.close()
    store.put(row("b"))


def test_many_threads_may_write(store: Store) -> None:
    threads = [
        threading.Thread(target=lambda n=n: [store.put(row(f"{n}-{i}")) for i in range(20)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [store.get(f"{n}-{i}", "ada") for n in range(8) for i in range(20)]
    assert None not in found


# --- filing -----------------------------------------------------------------------------------


def test_a_stored_response_is_as_it_was_sent(world: World, talker: Talker) -> None:
    talker("One.")
    answer = world.ask("a", store=True)
    stored = world.service.stored(answer.response_id, "")
    assert stored.response["output"] == [{"type": "message", "content": "One."}]
    assert stored.input_items == [{"said": "a"}]


def test_what_is_not_to_be_stored_is_not(world: World, talker: Talker) -> None:
    """W23"""
    talker("One.")
    answer = world.ask("a", store=False)
    assert world.path is not None and not world.path.exists()
    with pytest.raises(UnknownResponse):
        world.service.chain(answer.response_id, "")


def test_stored_input_is_that_requests_own(world: World, talker: Talker) -> None:
    """W23"""
    talker("One.", "Two.")
    last = world.stored_chain("a", "b")[-1]
    assert [m["content"] for m in world.service.stored(last.response_id, "").messages] == [
        "b",
        "Two.",
    ]


def test_a_client_that_left_before_the_filing_has_nothing_filed(
    world: World, talker: Talker
) -> None:
    """W23"""
    talker("One.")
    following = world.begin("a", store=True)
    following.wait()
    following.answer.cancel()
    world.file(following.answer)
    with pytest.raises(UnknownResponse):
        world.service.chain(following.answer.response_id, "")


def test_retention_is_the_rows_own(world: World, talker: Talker) -> None:
    """W8"""
    talker("One.")
    short = world.ask("a", store=True, retention_s=60)
    usual = world.ask("a", store=True)
    rows = [world.service.stored(a.response_id, "") for a in (short, usual)]
    assert [round(r.expires - r.created) for r in rows] == [60, 7 * 24 * 3600]


def test_a_response_whose_end_was_not_delivered_is_taken_back(world: World, talker: Talker) -> None:
    """W23"""
    talker("One.")
    answer = world.ask("a", store=True)
    world.service.unfile(answer)
    for act in (world.service.chain, world.service.stored):
        with pytest.raises(UnknownResponse):
            act(answer.response_id, "")


def test_a_deleted_response_is_gone_warm_and_cold(world: World, talker: Talker) -> None:
    talker("One.")
    answer = world.ask("a", store=True)
    world.service.delete(answer.response_id, "")
    with pytest.raises(UnknownResponse):
        world.begin("b", previous=answer.response_id)
    with pytest.raises(UnknownResponse):
        world.service.delete(answer.response_id, "")


def test_a_follow_up_that_comes_too_early_is_told_to_try_again(
    world: World, talker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W25"""
    monkeypatch.setattr(filing, "PATIENCE_S", 0.05)
    talker("One.", "Two.")
    following = world.begin("a", store=True)
    following.wait()
    with pytest.raises(StorageTimeout):
        world.begin("b", previous=following.answer.response_id)
    world.file(following.answer)
    assert world.ask("b", previous=following.answer.response_id).cache == "hit"


def test_a_follow_up_waits_for_its_row(world: World, talker: Talker) -> None:
    """W25"""
    talker("One.", "Two.")
    following = world.begin("a", store=True)
    following.wait()
    filing_later = threading.Timer(0.1, lambda: world.file(following.answer))
    filing_later.start()
    answer = world.ask("b", previous=following.answer.response_id)
    assert answer.turn is not None and answer.turn.text == "Two."
    filing_later.join()


def test_a_slow_store_does_not_hold_the_end_back(
    world: World,
    talker: Talker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W23"""
    monkeypatch.setattr(filing, "PATIENCE_S", 0.05)
    talker("One.", "Two.")
    go = threading.Event()
    put = Store.put
    monkeypatch.setattr(Store, "put", lambda self, row: go.wait(30) and put(self, row))
    answer = world.ask("a", store=True)
    assert "still being stored" in caplog.text
    assert world.ask("b", previous=answer.response_id).cache == "hit"  # it is live
    go.set()
    world.restart()
    assert world.service.stored(answer.response_id, "").response["id"] == answer.response_id


def test_a_response_that_is_being_written_can_be_deleted(
    world: World, talker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filing, "PATIENCE_S", 0.05)
    talker("One.")
    go = threading.Event()
    put = Store.put
    monkeypatch.setattr(Store, "put", lambda self, row: go.wait(30) and put(self, row))
    answers = [world.ask("a", store=True) for _ in range(2)]  # one is written, one waits
    for answer in answers:
        with pytest.raises(StorageTimeout):
            world.service.delete(answer.response_id, "")
    go.set()
    world.restart()
    for answer in answers:
        with pytest.raises(UnknownResponse):
            world.service.stored(answer.response_id, "")


def test_a_store_that_fails_costs_the_row_and_no_answer(
    world: World, talker: Talker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C21"""
    talker("One.", "Two.")
    (tmp_path / "file").write_text("")
    world.path = tmp_path / "file" / "responses.sqlite"
    world.restart()
    answer = world.ask("a", store=True)
    assert answer.turn is not None and answer.turn.text == "One."
    assert "was not stored" in caplog.text
    assert world.service.health().status == "degraded"
    (tmp_path / "file").unlink()
    assert world.ask("b", previous=answer.response_id, store=True).cache == "hit"
    assert world.service.health().status == "ok"


def test_live_sessions_are_bounded_and_the_store_has_the_rest(world: World, talker: Talker) -> None:
    world.limits = Limits(warm=2)
    talker("One.", "Two.")
    answers = [world.ask(text, store=True) for text in "abc"]
    statuses = [world.ask("x", previous=a.response_id).cache for a in answers]
    assert statuses == ["cold_replay", "hit", "hit"]


def test_live_sessions_have_their_time(world: World, talker: Talker) -> None:
    world.limits = Limits(warm_s=0.0)
    talker("One.", "Two.")
    answer = world.ask("a", store=True)
    assert world.ask("b", previous=answer.response_id).cache == "cold_replay"


def test_a_killed_host_loses_no_completed_response(tmp_path: Path) -> None:
    """A process that ends without closing anything."""
    path = tmp_path / "responses.sqlite"
    script = (
        "import os, sys, time; from pathlib import Path\n"
        "from mlxnb.sessions.serving.store import Store\n"
        "from mlxnb.sessions.serving.row import Row\n"
        "store = Store(Path(sys.argv[1]))\n"
        "for n in range(50):\n"
        "    store.put(Row(str(n), None, 'ada', '', 'm', 'k', None, time.time(),\n"
        "                  time.time() + 99, {}, [], [], b''))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=False, timeout=60)
    store = Store(path)
    assert None not in [store.get(str(n), "ada") for n in range(50)]
    store.close()
