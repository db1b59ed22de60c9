"""Several processes use a folder, and each may be killed at any time."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlxnb.cache.disk import known, schema, shard
from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.schema import MIGRATIONS
from mlxnb.cache.disk.shard import Shard
from mlxnb.cache.disk.tier import INDEX, DiskTier
from mlxnb.records import database
from mlxnb.records.database import Database

from .conftest import Make
from .test_tier import left_on_disk
from .world import PATIENCE_S, SPACE, chain, ids, plain, shards, sound, write

TESTS = str(Path(__file__).parents[2])

# --- two tiers --------------------------------------------------------------------------------


def test_what_another_writes_is_seen(make: Make) -> None:
    one, two, entries = make(), make(), chain("a", 3)
    assert two.has(SPACE, ids(entries)) == 0
    write(one, entries[:2])
    assert two.has(SPACE, ids(entries)) == 2
    write(one, entries[2:])
    assert plain(two.get(SPACE, ids(entries))) == plain(entries)


def test_what_another_deletes_is_seen(make: Make) -> None:
    one, two, entries = make(), make(), chain("a", 3)
    write(one, entries)
    assert two.has(SPACE, ids(entries)) == 3
    one.forget(SPACE, ids(entries[2:]))
    assert one.flush(PATIENCE_S)
    assert two.has(SPACE, ids(entries)) == 2
    one.clear()
    assert one.flush(PATIENCE_S)
    assert two.has(SPACE, ids(entries)) == 0
    write(one, entries)
    assert two.has(SPACE, ids(entries)) == 3


def test_one_that_has_not_looked_for_long_reads_all_anew(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "KEPT", 5)
    monkeypatch.setattr(known, "KEPT", 5)
    one, two = make(), make()
    chains = [chain(str(n), 3) for n in range(9)]
    for entries in chains:
        write(one, entries)
    assert [two.has(SPACE, ids(entries)) for entries in chains] == [3] * 9
    for entries in chains[:-1]:
        one.forget(SPACE, ids(entries))
    assert one.flush(PATIENCE_S)
    assert [two.has(SPACE, ids(entries)) for entries in chains] == [0] * 8 + [3]


def test_what_two_put_at_once_is_there_once(make: Make, folder: Path) -> None:
    one, two, entries = make(), make(), chain("a", 4)
    assert one.put(SPACE, entries) == 4
    assert two.put(SPACE, entries) in (0, 4)
    assert one.flush(PATIENCE_S) and two.flush(PATIENCE_S)
    assert one.count == two.count == 4
    assert plain(one.get(SPACE, ids(entries))) == plain(two.get(SPACE, ids(entries)))


def before_rows(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Have something happen once a shard has been written, before rows point to it."""
    real, acts = shard.write, [act]

    def written(folder: Path, namespace: str, entries: list[Entry]) -> Shard:
        made = real(folder, namespace, entries)
        if acts:
            acts.pop()()
        return made

    monkeypatch.setattr(shard, "write", written)


def test_what_another_forgets_while_it_is_merged_is_gone(
    make: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W66"""
    one, two, gone, kept = make(), make(), chain("a", 2), chain("b", 2)
    write(one, gone + kept)
    before_rows(monkeypatch, lambda: (two.forget(SPACE, ids(gone)), two.flush(PATIENCE_S)))
    one.forget(SPACE, ids(kept[1:]))
    assert one.flush(PATIENCE_S)
    assert left_on_disk(folder, gone + kept[1:]) == []
    assert plain(one.get(SPACE, ids(kept))) == plain(kept[:1])


def test_what_another_still_reads_is_wiped_later(
    make: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    tier, entries = make(), chain("a", 3)
    write(tier, entries)
    other = Database(folder / INDEX, MIGRATIONS)

    def left() -> bool:
        return any(entries[2].tokens in file.read_bytes() for file in folder.iterdir())

    def reading(connection: sqlite3.Connection) -> None:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (3,)
        tier.forget(SPACE, ids(entries[2:]))
        assert tier.flush(PATIENCE_S)
        assert left()

    other.read(reading)
    until = time.monotonic() + PATIENCE_S
    while left():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert (tier.state, tier.has(SPACE, ids(entries))) == ("ok", 2)
    other.close()


def test_shards_that_two_merge_at_once_are_merged_once(
    make: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, gone, kept = make(), make(), chain("a", 2), chain("b", 2)
    write(one, gone + kept)
    before_rows(monkeypatch, lambda: (two.forget(SPACE, ids(gone[1:])), two.flush(PATIENCE_S)))
    one.forget(SPACE, ids(gone[1:]))
    assert one.flush(PATIENCE_S)
    assert len(shards(folder)) == 1
    assert plain(one.get(SPACE, ids(kept))) == plain(kept)
    assert plain(two.get(SPACE, ids(gone))) == plain(gone[:1])


def test_what_another_moves_while_it_is_read_is_found(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, gone, kept = make(), make(), chain("a", 2), chain("b", 2)
    write(one, gone + kept)
    real, acts = shard.read, [1]

    def moved(*args: Any) -> Any:
        if acts:
            acts.pop()
            two.forget(SPACE, ids(gone))
            assert two.flush(PATIENCE_S)
        return real(*args)

    monkeypatch.setattr(shard, "read", moved)
    assert plain(one.get(SPACE, ids(kept))) == plain(kept)
    assert one.has(SPACE, ids(kept)) == 2


def test_what_another_deletes_while_it_is_read_is_a_miss(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, entries = make(), make(), chain("a", 2)
    write(one, entries)
    real = shard.read

    def cleared(*args: Any) -> Any:
        two.clear()
        assert two.flush(PATIENCE_S)
        return real(*args)

    monkeypatch.setattr(shard, "read", cleared)
    assert one.get(SPACE, ids(entries)) == []
    assert one.state == "ok"


# --- processes --------------------------------------------------------------------------------

WRITING = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cache.disk.world import PATIENCE_S, QUICK, SPACE, chain, ids
from mlxnb.cache.disk.tier import DiskTier
tier = DiskTier(Path(sys.argv[1]), limits=QUICK)
for number in range(100_000):
    entries = chain(f"{sys.argv[3]} {number}", 3, size=2000)
    tier.put(SPACE, entries)
    if number % 5 == 4:
        tier.forget(SPACE, ids(entries))
    if number % 3 == 0:
        assert tier.flush(PATIENCE_S)
        print(number, flush=True)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("seed", range(4))
def test_a_process_that_is_killed_loses_nothing_that_it_had_written(
    folder: Path, make: Make, seed: int
) -> None:
    rng = random.Random(seed)
    told: list[tuple[str, int]] = []
    for run in range(3):
        name = f"run {run}"
        writer = start(WRITING, str(folder), TESTS, name)
        assert writer.stdout is not None
        for _ in range(rng.randrange(1, 60)):
            told.append((name, int(writer.stdout.readline())))
        time.sleep(rng.random() / 50)
        writer.send_signal(signal.SIGKILL)
        writer.communicate(timeout=PATIENCE_S)
    tier = make()
    for name, last in told:
        entries = chain(f"{name} {last}", 3, size=2000)
        whole = 0 if last % 5 == 4 else 3
        assert plain(tier.get(SPACE, ids(entries))) == plain(entries[:whole])
    assert tier.state == "ok"
    assert_whole(tier)


def assert_whole(tier: DiskTier) -> None:
    """All that there is a row of can be read."""
    for entry in tier.entries(SPACE):
        found = tier.get(SPACE, [entry.id])
        assert ids(found) == [entry.id] and sound(found)


TOGETHER = """
import random, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cache.disk.world import PATIENCE_S, QUICK, SPACE, chain, ids, sound
from mlxnb.cache.disk.tier import DiskTier
tier = DiskTier(Path(sys.argv[1]), 300_000, QUICK)
rng = random.Random(sys.argv[3])
for _ in range(150):
    mine = chain(str(rng.randrange(40)), rng.randrange(1, 9), size=1500)
    tier.put(SPACE, mine)
    other = chain(str(rng.randrange(40)), 9, size=1500)
    assert sound(tier.get(SPACE, ids(other)))
    if rng.random() < 0.1:
        tier.forget(SPACE, ids(other))
    if rng.random() < 0.2:
        assert tier.flush(PATIENCE_S), tier.state
assert tier.flush(PATIENCE_S), tier.state
assert tier.state == "ok"
"""


def test_processes_write_merge_and_evict_together(folder: Path, make: Make) -> None:
    running = [start(TOGETHER, str(folder), TESTS, str(n)) for n in range(3)]
    for process in running:
        process.communicate(timeout=240)
    assert [process.returncode for process in running] == [0, 0, 0]
    tier = make(quota=300_000)
    write(tier, chain("last", 1))
    assert tier.count > 20
    assert_whole(tier)


LEAVING = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cache.disk.world import SPACE, chain
from mlxnb.cache.disk.limits import Limits
from mlxnb.cache.disk.tier import DiskTier
tier = DiskTier(Path(sys.argv[1]), limits=Limits(delay_s=1e6))
tier.put(SPACE, chain("a", 3))
"""


def test_a_process_that_ends_writes_what_waits(folder: Path, make: Make) -> None:
    leaving = start(LEAVING, str(folder), TESTS)
    leaving.communicate(timeout=PATIENCE_S)
    assert leaving.returncode == 0
    entries = chain("a", 3)
    assert plain(make().get(SPACE, ids(entries))) == plain(entries)
