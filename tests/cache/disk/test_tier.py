"""What is put is got, by whoever asks, until it is forgotten."""

from __future__ import annotations

import logging
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from mlxnb.cache.disk.entry import Entry, Payload
from mlxnb.cache.disk.limits import Limits
from mlxnb.cache.disk.tier import DiskTier

from .conftest import Make
from .world import PATIENCE_S, SPACE, chain, ids, plain, shards, size, sound, write

SLOW = Limits(delay_s=1e6, tidy_s=1e6)
"""Nothing is written until somebody waits for it."""


def test_nothing_is_there_at_first_and_nothing_is_made(tier: DiskTier, folder: Path) -> None:
    assert tier.has(SPACE, ["aa"]) == 0
    assert tier.get(SPACE, ["aa"]) == []
    assert (tier.nbytes, tier.count, tier.state) == (0, 0, "ok")
    assert tier.entries(SPACE) == []
    assert tier.flush(PATIENCE_S)
    assert not folder.exists()


def test_what_is_put_is_got_and_outlives_its_process(tier: DiskTier, make: Make) -> None:
    entries = chain("a", 5)
    write(tier, entries)
    tier.close()
    again = make()
    assert again.has(SPACE, ids(entries)) == 5
    assert plain(again.get(SPACE, ids(entries))) == plain(entries)


def test_what_waits_to_be_written_is_there(make: Make, folder: Path) -> None:
    tier, entries = make(limits=SLOW), chain("a", 5)
    assert tier.put(SPACE, entries) == 5
    assert tier.has(SPACE, ids(entries)) == 5
    assert plain(tier.get(SPACE, ids(entries))) == plain(entries)
    assert shards(folder) == []
    assert tier.flush(PATIENCE_S)
    assert len(shards(folder)) == 1


def test_only_leading_ids_count(tier: DiskTier) -> None:
    entries = chain("a", 5)
    write(tier, entries[:2] + entries[3:])
    assert tier.has(SPACE, ids(entries)) == 2
    assert ids(tier.get(SPACE, ids(entries))) == ids(entries[:2])
    assert tier.has(SPACE, ids(entries[3:])) == 2


def test_namespaces_do_not_meet(tier: DiskTier, folder: Path) -> None:
    entries = chain("a", 3)
    write(tier, entries)
    assert tier.has("other", ids(entries)) == 0
    write(tier, entries, "other")
    assert len(shards(folder)) == 2
    tier.clear("other")
    assert (tier.has("other", ids(entries)), tier.has(SPACE, ids(entries))) == (0, 3)


def test_what_is_there_is_not_taken_again(tier: DiskTier) -> None:
    entries = chain("a", 3)
    write(tier, entries)
    assert tier.put(SPACE, entries) == 0
    assert tier.put(SPACE, chain("a", 4)) == 1
    assert tier.dropped == 0


def test_what_is_too_much_is_dropped_and_counted(make: Make) -> None:
    tier = make(limits=replace(SLOW, backlog=250))
    entries = chain("a", 4)
    assert tier.put(SPACE, entries) == 2
    assert tier.dropped == 2
    assert tier.has(SPACE, ids(entries)) == 2
    assert tier.flush(PATIENCE_S)
    assert tier.put(SPACE, entries) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"12345678",
        bytearray(b"12345678"),
        memoryview(b"12345678"),
        memoryview(b"12345678").cast("I"),
        memoryview(b"12345678").cast("B", (2, 4)),
        b"",
    ],
)
def test_data_may_be_of_any_kind(tier: DiskTier, data: Payload) -> None:
    write(tier, [Entry("aa", None, "state", 0, 16, b"1234", data)])
    (found,) = tier.get(SPACE, ["aa"])
    assert bytes(found.data) == bytes(data)
    assert (found.kind, found.tokens) == ("state", b"1234")


def test_data_that_is_not_contiguous_is_dropped(tier: DiskTier) -> None:
    scattered = memoryview(b"12345678")[::2]
    assert tier.put(SPACE, [Entry("aa", None, "kv", 0, 16, b"", scattered)]) == 0
    assert tier.dropped == 1


def test_a_large_batch_becomes_a_few_shards(make: Make, folder: Path) -> None:
    tier = make(limits=replace(SLOW, batch=1000))
    entries = chain("a", 40)
    tier.put(SPACE, entries)
    assert tier.flush(PATIENCE_S)
    assert len(shards(folder)) == 4
    assert plain(tier.get(SPACE, ids(entries))) == plain(entries)


def test_folder_and_files_are_their_users_alone(make: Make, folder: Path) -> None:
    """W66"""
    folder.mkdir(mode=0o755)
    old = os.umask(0)
    try:
        tier = make()
        for number in range(9):
            write(tier, chain(str(number), 2))
        tier.forget(SPACE, ids(chain("0", 1)))
        assert tier.flush(PATIENCE_S)
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


# --- forgetting -------------------------------------------------------------------------------


def left_on_disk(folder: Path, entries: list[Entry]) -> list[str]:
    """Entries of which anything can be read in any file."""
    texts = [file.read_bytes() for file in folder.iterdir()]
    return [
        entry.id
        for entry in entries
        if any(bytes(entry.data) in text or entry.tokens in text for text in texts)
    ]


def test_what_is_forgotten_is_gone_from_the_files(tier: DiskTier, folder: Path) -> None:
    """W66"""
    entries, others = chain("a", 4), chain("b", 4)
    write(tier, entries + others)
    assert left_on_disk(folder, entries) == ids(entries)
    tier.forget(SPACE, ids(entries))
    assert tier.has(SPACE, ids(entries)) == 0
    assert tier.flush(PATIENCE_S)
    assert left_on_disk(folder, entries) == []
    assert plain(tier.get(SPACE, ids(others))) == plain(others)


def test_what_others_build_on_stays(tier: DiskTier, folder: Path) -> None:
    entries = chain("a", 6)
    branch = chain("b", 2, parent=entries[2].id)
    write(tier, entries + branch)
    tier.forget(SPACE, ids(entries))
    assert tier.flush(PATIENCE_S)
    assert tier.has(SPACE, ids(entries)) == 3
    assert left_on_disk(folder, entries + branch) == ids(entries[:3] + branch)
    tier.forget(SPACE, ids(entries[:3] + branch))
    assert tier.flush(PATIENCE_S)
    assert left_on_disk(folder, entries + branch) == []
    assert shards(folder) == []


def test_what_waits_to_be_written_can_be_forgotten_and_put_again(make: Make) -> None:
    tier, entries = make(limits=replace(SLOW, delay_s=0.0)), chain("a", 3)
    tier.put(SPACE, entries)
    tier.forget(SPACE, ids(entries))
    assert tier.has(SPACE, ids(entries)) == 0
    assert tier.put(SPACE, entries) == 3
    assert plain(tier.get(SPACE, ids(entries))) == plain(entries)
    assert tier.flush(PATIENCE_S)
    assert plain(tier.get(SPACE, ids(entries))) == plain(entries)


def test_bytes_of_what_was_dropped_before_are_forgotten_too(make: Make, folder: Path) -> None:
    """An entry that was evicted, while the shard that it was in stayed."""
    tier = make(quota=1150)
    entries = chain("a", 4)
    write(tier, entries)
    write(tier, chain("b", 1, size=1))
    assert left_on_disk(folder, entries) == ids(entries)
    held = tier.has(SPACE, ids(entries))
    assert held < 4
    tier.forget(SPACE, ids(entries))
    assert tier.flush(PATIENCE_S)
    assert left_on_disk(folder, entries) == []


def test_all_can_be_cleared(tier: DiskTier, folder: Path) -> None:
    entries = chain("a", 3)
    write(tier, entries)
    write(tier, entries, "other")
    (folder / "index.sqlite.damaged-1").write_bytes(entries[0].tokens)
    tier.note("rate", 2.0)
    tier.clear()
    assert tier.has(SPACE, ids(entries)) == tier.has("other", ids(entries)) == 0
    assert tier.flush(PATIENCE_S)
    assert left_on_disk(folder, entries) == []
    assert (tier.count, tier.nbytes, tier.noted("rate")) == (0, 0, 2.0)
    write(tier, entries)
    assert tier.has(SPACE, ids(entries)) == 3


# --- numbers ----------------------------------------------------------------------------------


def test_notes_are_kept(tier: DiskTier, make: Make) -> None:
    assert tier.noted("prefill m") is None
    tier.note("prefill m", 120.0)
    tier.note("prefill m", 125.5)
    assert tier.noted("prefill m") == 125.5
    tier.close()
    assert make().noted("prefill m") == 125.5


def test_entries_are_rows_of_a_frame(tier: DiskTier) -> None:
    entries = chain("a", 3)
    write(tier, entries)
    found = tier.entries(SPACE)
    assert [(e.id, e.parent, e.kind, e.start, e.end, e.nbytes) for e in found] == [
        (e.id, e.parent, e.kind, e.start, e.end, e.nbytes) for e in entries
    ]
    assert all(e.last_used > 0 for e in found)
    assert tier.entries("other") == []


def test_bytes_are_those_of_the_files(tier: DiskTier, folder: Path) -> None:
    write(tier, chain("a", 3))
    write(tier, chain("b", 5))
    assert tier.nbytes == size(folder)
    assert tier.count == 8


def test_the_quota_is_a_part_of_the_disk(make: Make) -> None:
    assert 0 < make().quota <= 50 * 10**9
    assert make(quota=123).quota == 123


# --- its end, and threads ---------------------------------------------------------------------


def test_closing_writes_what_waits(make: Make) -> None:
    tier, entries = make(limits=SLOW), chain("a", 3)
    tier.put(SPACE, entries)
    tier.note("rate", 1.0)
    tier.close()
    again = make()
    assert plain(again.get(SPACE, ids(entries))) == plain(entries)
    assert again.noted("rate") == 1.0


def test_nothing_is_there_after_closing(tier: DiskTier) -> None:
    entries = chain("a", 3)
    write(tier, entries)
    tier.close()
    tier.close()
    assert tier.has(SPACE, ids(entries)) == 0
    assert tier.get(SPACE, ids(entries)) == []
    assert tier.put(SPACE, chain("b", 1)) == 0
    tier.forget(SPACE, ids(entries))
    tier.clear()
    tier.note("rate", 1.0)
    assert tier.flush(PATIENCE_S)


def test_threads_put_and_get_at_once(tier: DiskTier) -> None:
    chains = [chain(str(n), 30) for n in range(6)]
    wrong: list[int] = []

    def work(number: int) -> None:
        for end in range(1, 31):
            tier.put(SPACE, chains[number][:end])
            other = chains[(number + 1) % 6]
            found = tier.get(SPACE, ids(other))
            if not sound(found) or ids(found) != ids(other)[: len(found)]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tier.flush(PATIENCE_S)
    assert wrong == []
    assert [tier.has(SPACE, ids(c)) for c in chains] == [30] * 6


def test_nothing_is_logged_where_nothing_fails(
    tier: DiskTier, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        write(tier, chain("a", 3))
        tier.get(SPACE, ids(chain("a", 3)))
        tier.close()
    assert caplog.records == []


def test_the_package_does_without_mlx() -> None:
    import subprocess
    import sys

    script = "import sys, mlxnb.cache.disk.tier; sys.exit('mlx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
