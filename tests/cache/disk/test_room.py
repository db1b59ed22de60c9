"""What goes when there is no room: the least recently used, after all that builds on it."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.cache.disk.rows import Row, insert, touch
from mlxnb.cache.disk.schema import MIGRATIONS
from mlxnb.cache.disk.stock import MANY, Stock, evict, next_merge, stocks

from .conftest import Make
from .world import PATIENCE_S, QUICK, SPACE, chain, ids, plain, shards, size, write

# --- the order --------------------------------------------------------------------------------


def index(parents: list[int], lengths: list[int], used: list[int]) -> sqlite3.Connection:
    """Entries with those parents, each in a shard of its own, used in that order."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(MIGRATIONS[0])
    for number, (parent, length) in enumerate(zip(parents, lengths, strict=True)):
        above = str(parent) if parent >= 0 else None
        row = Row(str(number), above, "kv", 0, 1, b"", str(number), 0, length, b"")
        insert(connection, SPACE, [row])
        connection.execute(
            "INSERT INTO shards VALUES (?, ?, ?, ?)", (number, SPACE, length, length)
        )
    touch(connection, {(SPACE, str(number)): 0.0 for number in used})
    return connection


def expected(parents: list[int], lengths: list[int], used: list[int], over: int) -> set[int]:
    """What anybody would write: again and again, the oldest that nothing builds on."""
    left = list(used)
    while over > 0 and left:
        leaves = [n for n in left if not any(parents[m] == n for m in left if m != n)]
        oldest = (leaves or left)[0]
        left.remove(oldest)
        over -= lengths[oldest]
    return set(left)


@given(st.data())
def test_the_oldest_leaf_goes_first(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    parents = [data.draw(st.integers(-1, n - 1)) for n in range(count)]
    lengths = [data.draw(st.integers(1, 50)) for _ in range(count)]
    used = data.draw(st.permutations(range(count)))
    over = data.draw(st.integers(0, sum(lengths)))
    with closing(index(parents, lengths, used)) as connection:
        evict(connection, over)
        left = {int(name) for (name,) in connection.execute("SELECT id FROM entries")}
    assert left == expected(parents, lengths, used, over)


def test_entries_that_build_on_each_other_in_a_circle_go_too() -> None:
    with closing(index([1, 0, 2], [10, 10, 10], [0, 1, 2])) as connection:
        evict(connection, 30)
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (0,)
        assert all(stock.count == 0 for stock in stocks(connection).values())


def test_what_is_used_goes_last(make: Make) -> None:
    tier = make(quota=5000)
    old, kept, new = chain("old", 4, size=300), chain("kept", 4, size=300), chain("new", 4, 300)
    write(tier, old)
    write(tier, kept)
    assert len(tier.get(SPACE, ids(old))) == 4
    write(tier, new)
    assert tier.has(SPACE, ids(old)) == tier.has(SPACE, ids(new)) == 4
    assert tier.has(SPACE, ids(kept)) < 4


def test_an_entry_that_is_built_on_counts_as_used(make: Make) -> None:
    tier = make(quota=4200)
    first, other = chain("a", 1, size=300), chain("b", 4, size=300)
    write(tier, first)
    write(tier, other)
    more = chain("a", 3, size=300, parent=first[0].id, start=1)
    write(tier, more)
    write(tier, chain("c", 2, size=300))
    assert tier.has(SPACE, ids(first + more)) == 4
    assert tier.has(SPACE, ids(other)) < 4


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_the_order_does_not_depend_on_the_time(
    make: Make, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    tier = make(quota=5000)
    old, kept, new = chain("old", 4, size=300), chain("kept", 4, size=300), chain("new", 4, 300)
    write(tier, old)
    write(tier, kept)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + jump)
    assert len(tier.get(SPACE, ids(old))) == 4
    write(tier, new)
    assert tier.has(SPACE, ids(old)) == tier.has(SPACE, ids(new)) == 4
    assert tier.has(SPACE, ids(kept)) < 4


def test_the_order_outlives_its_process(make: Make) -> None:
    tier = make(quota=5000)
    old, kept, new = chain("old", 4, size=300), chain("kept", 4, size=300), chain("new", 4, 300)
    write(tier, old)
    write(tier, kept)
    tier.get(SPACE, ids(old))
    tier.close()
    again = make(quota=5000)
    write(again, new)
    assert again.has(SPACE, ids(old)) == 4
    assert again.has(SPACE, ids(kept)) < 4


# --- the quota --------------------------------------------------------------------------------


def test_files_stay_within_the_quota(make: Make, folder: Path) -> None:
    tier = make(quota=100_000, limits=replace(QUICK, batch=8000))
    rng = random.Random(5)
    for number in range(60):
        write(tier, chain(str(number), rng.randrange(1, 8), size=rng.randrange(1, 4000)))
        tier.get(SPACE, ids(chain(str(rng.randrange(number + 1)), 1)))
        assert size(folder) <= 100_000 + 8000
    assert tier.flush(PATIENCE_S)
    assert 50_000 < tier.nbytes <= 100_000


def test_no_entry_outlives_what_it_builds_on(make: Make) -> None:
    tier = make(quota=20_000)
    rng = random.Random(6)
    for number in range(40):
        write(tier, chain(str(number), 6, size=rng.randrange(1, 900)))
        tier.get(SPACE, ids(chain(str(rng.randrange(number + 1)), 3)))
    found = tier.entries(SPACE)
    there = {entry.id for entry in found}
    assert all(entry.parent is None or entry.parent in there for entry in found)
    assert len(found) > 10


def test_what_is_larger_than_the_quota_is_not_kept(make: Make) -> None:
    tier = make(quota=2000)
    small = chain("a", 1)
    write(tier, small)
    write(tier, chain("large", 1, size=2001))
    assert tier.has(SPACE, ids(chain("large", 1))) == 0
    assert tier.has(SPACE, ids(small)) == 1


def test_a_smaller_quota_is_kept_to(make: Make, folder: Path) -> None:
    tier = make(quota=100_000)
    for number in range(20):
        write(tier, chain(str(number), 4, size=1000))
    tier.close()
    write(make(quota=30_000), chain("new", 1))
    assert 10_000 < size(folder) <= 30_000


def test_a_quota_of_nothing_keeps_nothing(make: Make) -> None:
    tier = make(quota=0)
    write(tier, chain("a", 3))
    assert (tier.has(SPACE, ids(chain("a", 3))), tier.nbytes) == (0, 0)


# --- merging ----------------------------------------------------------------------------------


def stock(name: str, live: int, payload: int | None = None, namespace: str = SPACE) -> Stock:
    return Stock(name, namespace, live, live if payload is None else payload, 1, live)


def names(group: list[Stock]) -> list[str]:
    return [stock.name for stock in group]


def test_a_few_small_shards_are_left_alone() -> None:
    few = [stock(str(n), 100) for n in range(MANY - 1)]
    assert next_merge(few, 1000) == []
    assert next_merge([*few, stock("other", 100, namespace="other")], 1000) == []
    assert next_merge([*few, stock("large", 900)], 1000) == []


def test_many_small_shards_become_one_large_one() -> None:
    many = [stock(str(n), 300) for n in range(MANY)]
    assert names(next_merge(many, 1000)) == ["0", "1", "2", "3"]
    assert next_merge([stock(str(n), 1000) for n in range(MANY)], 1000) == []


def test_hollow_shards_come_first() -> None:
    many = [stock(str(n), 300) for n in range(MANY)]
    hollow = [stock("a", 40, 100), stock("b", 50, 100)]
    assert names(next_merge([*many, *hollow], 1000)) == ["a"]


def wait_for(fact: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_small_shards_are_merged(make: Make, folder: Path) -> None:
    tier = make()
    entries = chain("a", 100)
    for entry in entries:
        write(tier, [entry])
    wait_for(lambda: len(shards(folder)) < 2 * MANY)
    assert plain(tier.get(SPACE, ids(entries))) == plain(entries)


def test_an_entry_is_rewritten_a_few_times_at_most() -> None:
    """However small shards come, as many come into one as the quotient of their sizes allows."""
    counts = dict.fromkeys(range(4000), 0)
    there: dict[str, list[int]] = {}
    for number in range(4000):
        there[f"s{number}"] = [number]
        while group := next_merge([stock(n, 10 * len(e)) for n, e in there.items()], 10_000):
            joined = [entry for s in group for entry in there.pop(s.name)]
            there[f"m{number} {joined[0]}"] = joined
            for entry in joined:
                counts[entry] += 1
    assert max(counts.values()) <= 8
    assert len(there) < 40


def test_shards_are_safetensors_files(make: Make, folder: Path) -> None:
    from safetensors import safe_open

    entries = chain("a", 3)
    write(make(), entries)
    (path,) = shards(folder)
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"version": "1", "namespace": SPACE}
        assert sorted(file.keys()) == sorted(ids(entries))
        read = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert {name: (str(a.dtype), a.tobytes()) for name, a in read.items()} == {
        entry.id: ("uint8", entry.data) for entry in entries
    }
