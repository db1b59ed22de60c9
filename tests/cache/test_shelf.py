"""The prefix cache over a disk tier: what comes back is what was there, or nothing does."""

from __future__ import annotations

import logging
import random
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from engine.running import until

from mlxnb.cache import packer, shelf
from mlxnb.cache.chain import Links, deepest_state, longest
from mlxnb.cache.disk import shard
from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.tier import INDEX, DiskTier
from mlxnb.cache.index import root_id
from mlxnb.cache.layout import Layout
from mlxnb.cache.live import Live
from mlxnb.cache.plan import Plan
from mlxnb.cache.pool import BLOCK, SLAB
from mlxnb.cache.room import NoRoom
from mlxnb.cache.shelf import RATE, Fetch, Shelf
from mlxnb.cache.store import MAX_HOT, PrefixCache
from mlxnb.records.tokens import pack, unpack

from . import forgetful, kv
from .disk.world import PATIENCE_S, QUICK, shards

MIB = 2**20
PLAIN = ["contiguous", "paged"]
every_kind = pytest.mark.parametrize("kind", [*PLAIN, *forgetful.KINDS])
every_plain_kind = pytest.mark.parametrize("kind", PLAIN)
every_forgetful_kind = pytest.mark.parametrize("kind", forgetful.KINDS)


class Life:
    """A prefix cache with one model over a tier of its own, as an engine has it."""

    def __init__(self, folder: Path, kind: str, budget: int = 64 * MIB, **tier: Any) -> None:
        self.kind = kind
        self.disk = DiskTier(folder, **{"limits": QUICK, **tier})
        self.store = PrefixCache(budget, self.disk)
        self.rates: dict[str, float | None] = {}
        self.load()

    def load(self, key: str = "model") -> None:
        rate = lambda: self.rates.get(key)  # noqa: E731
        if self.kind in PLAIN:
            layout, paged = Layout(kv.LAYERS), self.kind == "paged"
            self.store.register(key, key, kv.Model(), layout, paged, rate)
        else:
            model = forgetful.Model(*forgetful.KINDS[self.kind])
            self.store.register(key, key, model, model.layout(), False, rate)

    @property
    def shelf(self) -> Shelf:
        assert self.store.shelf is not None
        return self.store.shelf

    @property
    def name(self) -> str:
        return self.shelf.namespace("model")

    def feed(self, live: Live, tokens: list[int]) -> None:
        kv.feed(live, tokens) if self.kind in PLAIN else forgetful.feed(live, tokens)

    def assert_sound(self, live: Live) -> None:
        if live.length:
            kv.assert_sound(live) if self.kind in PLAIN else forgetful.assert_sound(live)

    # --- turns --------------------------------------------------------------------------------

    def plan(
        self,
        prompt: list[int],
        owner: str | None = None,
        marks: tuple[int, ...] = (),
        salt: str = "",
        key: str = "model",
    ) -> Plan:
        return self.store.plan(key, salt, pack(prompt), owner, marks=marks)

    def begin(self, plan: Plan, key: str = "model", wait: float = PATIENCE_S) -> Live:
        """Wait for the disk, start, and compute the rest of the prompt."""
        assert not self.store.fetching(plan, wait)
        live = self.store.admit(key, plan)
        assert live.length == plan.matched
        self.assert_sound(live)
        left = unpack(plan.prompt)[live.length :]
        while left:
            count = live.until_mark(len(left))
            self.feed(live, left[:count])
            left = left[count:]
            if live.due:
                self.store.room.checkpoint(live)
        return live

    def talk(self, prompt: list[int], owner: str | None = None, **of: Any) -> Plan:
        """A whole turn; returns its plan as it was carried out."""
        plan = self.plan(prompt, owner, **of)
        live = self.begin(plan, of.get("key", "model"))
        self.assert_sound(live)
        self.store.retire(live)
        return plan

    def write(self) -> None:
        """Let all that has ended be packed and written."""
        while self.store.write_behind(False):
            pass
        assert self.disk.flush(PATIENCE_S)

    def settled(self) -> None:
        """Nothing is in use, and each slot is a block's, a table's, or free."""
        assert self.store.faults == 0
        for space in self.store.spaces():
            assert not any(block.refs for block in space.blocks.values())
            held = set(space.blocks) | {s for v in space.lives if v.pages for s in v.pages.table}
            assert len(held) + space.pool.free == space.pool.slabs * SLAB
        for live in self.store.lives():
            self.assert_sound(live)


Open = Callable[..., Life]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kv"


@pytest.fixture
def open_life(folder: Path) -> Iterator[Open]:
    """Open a cache over the folder; those before it are still there, as other processes are."""
    made: list[Life] = []

    def open_one(kind: str, budget: int = 64 * MIB, **tier: Any) -> Life:
        made.append(Life(folder, kind, budget, **tier))
        return made[-1]

    yield open_one
    for life in made:
        life.settled()
        life.disk.close()


def tokens(start: int, length: int) -> list[int]:
    return list(range(start, start + length))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# --- chains -----------------------------------------------------------------------------------


def test_the_ids_of_a_chain_are_those_of_the_index() -> None:
    store = kv.store_of(64 * MIB)
    store.retire(kv.begun(store, kv.planned(store, tokens(0, 40))), carve=True)
    links = Links.of(root_id("model", ""), pack(tokens(0, 40)))
    assert links.ids == [block.id for block in sorted(store.index, key=lambda b: b.start)]


def test_a_chain_can_be_cut_anywhere() -> None:
    whole = Links.of("00", pack(tokens(0, 40)))
    for length in range(41):
        cut, alone = whole.cut(length), Links.of("00", pack(tokens(0, length)))
        assert (cut.tokens, cut.ids) == (alone.tokens, alone.ids)
        assert cut.state(length) == whole.state(length)
        if length % BLOCK:
            assert whole.tail(length) == cut.ids[-1]
    assert len({whole.state(end) for end in range(41)} | set(whole.ids)) == 41 + 3


def test_what_is_on_disk_of_a_prompt_is_found() -> None:
    whole = Links.of("00", pack(tokens(0, 40)))
    there = {*whole.ids[:2], whole.tail(35), whole.tail(37), whole.state(20), whole.state(36)}

    def has(ids: Iterable[str]) -> int:
        return len(list(takewhile(there.__contains__, ids)))

    found = longest("00", pack([*tokens(0, 38), 500]), has)
    assert (found.length, found.ids) == (37, [*whole.ids[:2], whole.tail(37)])
    assert deepest_state(found, found.length, has) == 36
    found = longest("00", pack(tokens(0, 36)), has)
    assert (found.length, deepest_state(found, found.length, has)) == (35, 20)
    there.remove(whole.ids[1])
    found = longest("00", pack(tokens(0, 40)), has)
    assert (found.length, deepest_state(found, found.length, has)) == (16, 0)


# --- what comes back --------------------------------------------------------------------------


@every_kind
def test_another_life_goes_on_where_one_ended(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 60), "a")
    one.talk(tokens(0, 105), "a")
    one.write()
    two = open_life(kind)
    plan = two.talk(tokens(0, 130), "b")
    assert (plan.matched, plan.fetched) == (105, 105)
    assert two.talk(tokens(0, 140), "b").matched == 130


@every_plain_kind
def test_a_prompt_that_goes_astray_takes_the_whole_blocks_before(
    open_life: Open, kind: str
) -> None:
    open_life(kind).talk(tokens(0, 105), "a")
    one = open_life(kind)
    one.talk(tokens(0, 105), "a")
    one.write()
    plan = open_life(kind).talk([*tokens(0, 75), 500, 501], "b")
    assert (plan.matched, plan.fetched) == (64, 64)


@every_forgetful_kind
@pytest.mark.parametrize("head", [16, 19, 31, 32, 50])
def test_another_conversation_begins_at_the_checkpoint_that_they_share(
    open_life: Open, kind: str, head: int
) -> None:
    """C10: a system text ends wherever it ends, in the midst of a block."""
    one = open_life(kind)
    one.talk(tokens(0, 90), "a", marks=(head,))
    one.write()
    plan = open_life(kind).talk([*tokens(0, head), *tokens(500, 40)], "b", marks=(head,))
    assert (plan.matched, plan.fetched) == (head, head)


@every_kind
def test_only_what_is_not_in_memory_is_read(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 170), "a", marks=(80,))
    one.write()
    two = open_life(kind)
    two.store.retire(two.begin(two.plan(tokens(0, 81), "b", marks=(80,))), carve=True)
    plan = two.plan(tokens(0, 200), "c")
    assert plan.fetch is not None and plan.matched >= 80
    assert plan.fetch.first == 5
    before = plan.matched
    live = two.begin(plan)
    assert plan.matched == 170
    assert plan.fetched == 170 - before
    two.store.retire(live)


@every_kind
def test_several_at_once_file_it_once(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 170), "a")
    one.write()
    two = open_life(kind)
    plans = [two.plan([*tokens(0, 170), *tokens(500 + 10 * n, 5)], f"b{n}") for n in range(4)]
    assert all(plan.fetch is not None for plan in plans)
    lives = [two.begin(plan) for plan in plans]
    assert [plan.matched for plan in plans] == [170] * 4
    assert len(two.store.index) == 11
    for live in lives:
        two.store.retire(live)


@every_kind
def test_what_another_has_computed_meanwhile_is_taken_from_memory(
    open_life: Open, kind: str
) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 100), "a")
    one.write()
    two = open_life(kind)
    waiting = two.plan(tokens(0, 150), "b")
    two.store.retire(two.begin(two.store.plan("model", "", pack(tokens(0, 140)), "c", False)))
    live = two.begin(waiting)
    assert (waiting.matched, waiting.fetched) == (140, 100)
    two.store.retire(live)


@every_forgetful_kind
def test_a_checkpoint_comes_back_to_keys_that_are_still_there(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.store.retire(one.begin(one.plan(tokens(0, 100), "a", marks=(50,))), carve=True)
    one.write()
    for checkpoint in one.store.room.snapshots:
        one.store.space("model").forget(checkpoint)
    plan = one.talk([*tokens(0, 50), *tokens(500, 20)], "b")
    assert (plan.matched, plan.fetched) == (50, 50)


@every_kind
def test_salts_and_models_are_apart(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.load("other")
    one.talk(tokens(0, 100), "a", salt="pepper")
    one.talk(tokens(0, 100), "a", key="other")
    one.write()
    two = open_life(kind)
    assert two.plan(tokens(0, 120)).fetch is None
    plan = two.plan(tokens(0, 120), salt="pepper")
    assert plan.fetch is not None and plan.fetch.position == 100
    two.store.release(plan)


@every_kind
def test_what_is_there_is_not_written_again(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 90), "a", marks=(40,))
    one.write()
    before, size = one.disk.count, one.disk.nbytes
    one.talk(tokens(0, 90), "b", marks=(40,))
    two = open_life(kind)
    two.talk(tokens(0, 90), "c", marks=(40,))
    for life in (one, two):
        life.write()
    assert two.disk.count - before <= 2 * (kind not in PLAIN)  # where each began, and went on
    one.talk(tokens(0, 300), "a")
    one.write()
    assert one.disk.nbytes > size


@every_kind
def test_a_conversation_that_is_in_blocks_already_is_written(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.store.retire(one.begin(one.plan(tokens(0, 100), "a", marks=(40,))), carve=True)
    for number in range(MAX_HOT + 1):
        one.talk(tokens(1000 * number + 1000, 20), f"s{number}")
    one.write()
    two = open_life(kind)
    assert two.talk(tokens(0, 130), "b").fetched == 100
    assert two.talk(tokens(1000, 21), "c").matched == 20


@every_kind
def test_a_conversation_that_goes_on_before_it_is_packed_is_written_then(
    open_life: Open, kind: str
) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 100), "a")
    live = one.begin(one.plan(tokens(0, 120), "a"))
    assert live.running
    one.write()
    one.store.retire(live)
    one.write()
    assert open_life(kind).talk(tokens(0, 130), "b").fetched == 120


@every_kind
def test_it_is_packed_in_pieces(
    open_life: Open, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While requests run, little at a time; what comes between does not disturb it."""
    monkeypatch.setattr(packer, "PIECE", 1)
    one = open_life(kind)
    one.talk(tokens(0, 100), "a")
    pieces = 0
    while one.store.write_behind(True):
        pieces += 1
        if pieces == 3:
            one.talk([*tokens(0, 40), 500], "b")
    assert pieces >= (7 if one.store.space("model").pool.slab_bytes else 1)
    one.write()
    two = open_life(kind)
    assert two.talk(tokens(0, 130), "c").fetched == 100


def test_a_cache_without_a_disk_writes_nothing() -> None:
    store = kv.store_of(64 * MIB)
    kv.talk(store, tokens(0, 100))
    assert not store.write_behind(False)
    assert kv.planned(store, tokens(0, 50)).fetch is None


@every_kind
def test_what_reuses_nothing_reads_and_writes_nothing(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 100), "a")
    one.write()
    two = open_life(kind)
    plan = two.store.cold_plan(pack(tokens(0, 120)))
    assert plan.fetch is None
    live = two.begin(plan)
    assert live.length == 120
    two.store.drop(live)  # as its request ends
    assert not two.store.write_behind(False)
    plan = two.store.plan("model", "", pack(tokens(0, 120)), None, promise=False)
    assert plan.fetch is None


# --- whether it is worth it -------------------------------------------------------------------


@every_plain_kind
def test_little_is_not_asked_for(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 100), "a")
    one.write()
    two = open_life(kind)
    assert two.plan(tokens(0, BLOCK)).fetch is None
    two.talk([*tokens(0, 90), 500], "b")
    assert two.plan(tokens(0, 105)).fetch is None


@every_plain_kind
def test_where_computing_is_faster_nothing_is_read(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 100), "a")
    one.write()
    two = open_life(kind)
    two.disk.note(RATE, 100.0 * kv.TOKEN)
    for computed, read in ((None, True), (99.0, True), (101.0, False)):
        two.disk.note(RATE, 100.0 * kv.TOKEN)
        two.rates["model"] = computed
        plan = two.plan(tokens(0, 120))
        assert (plan.fetch is not None) == read
        two.store.release(plan)


@every_plain_kind
def test_how_fast_a_model_computes_is_known_before_it_has(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.rates["model"] = 10**9
    one.talk(tokens(0, 100), "a")
    one.disk.note(RATE, 1.0)
    one.write()
    two = open_life(kind)
    assert two.plan(tokens(0, 120)).fetch is None


@every_plain_kind
def test_a_disk_that_was_slow_once_is_tried_again(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 100), "a")
    one.write()
    two = open_life(kind)
    two.rates["model"] = 1000.0
    two.disk.note(RATE, 100.0 * kv.TOKEN)
    plans = [two.plan(tokens(0, 120)) for _ in range(50)]
    asked = [plan.fetch is not None for plan in plans]
    assert asked == sorted(asked) and not asked[0] and asked[-1]
    for plan in plans:
        two.store.release(plan)


@every_plain_kind
def test_the_rate_is_that_of_reading_and_not_of_waiting(open_life: Open, kind: str) -> None:
    """A request that waits for others in the queue says nothing of the disk."""
    one = open_life(kind)
    one.talk(tokens(0, 12_000), "a")
    one.write()
    two = open_life(kind)
    plan = two.plan(tokens(0, 12_001))
    assert plan.fetch is not None
    plan.fetch.wait(PATIENCE_S)
    plan.fetch = replace(plan.fetch, began=plan.fetch.began - 1000.0)
    live = two.begin(plan)
    assert plan.fetched == 12_000
    rate = two.disk.noted(RATE)
    assert rate is not None and rate > 2 * 12_000 * kv.TOKEN / 1000
    two.store.retire(live)


@every_kind
def test_what_cannot_be_held_is_not_read(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 3000), "a")
    one.write()
    two = open_life(kind, budget=3000 * one.store.space("model").pool.token_bytes // 2)
    plan = two.plan(tokens(0, 3001))
    assert (plan.fetch is None) == (one.store.space("model").pool.token_bytes > 0)
    two.store.release(plan)


# --- little room ------------------------------------------------------------------------------


@every_kind
def test_what_has_room_for_a_part_takes_a_part_or_nothing(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 700), "a", marks=(200, 400, 600))
    one.write()
    roomy = one.store.nbytes
    seen = set()
    for share in range(1, 20):
        two = open_life(kind, budget=share * roomy // 6)
        plan = two.plan(tokens(0, 750))
        try:
            live = two.begin(plan)
        except NoRoom:
            two.store.release(plan)
            continue
        assert two.store.nbytes <= two.store.budget
        seen.add(plan.matched)
        two.store.retire(live)
        two.settled()
        two.store.forget("model", "model")
        assert two.store.nbytes == 0
    assert 700 in seen


@pytest.mark.parametrize("budget", [3, 4, 5, 6])
def test_what_runs_keeps_the_slots_that_it_was_promised(open_life: Open, budget: int) -> None:
    one = open_life("paged")
    one.talk(tokens(0, 500), "a")
    one.write()
    two = open_life("paged", budget=budget * kv.SLAB_BYTES)
    live = two.begin(two.plan(tokens(5000, 10), "b"))
    two.store.room.reserve(live, 400)
    waiting = two.plan(tokens(0, 520), "c")
    try:
        other = two.begin(waiting)
    except NoRoom:
        two.store.release(waiting)
    else:
        two.store.retire(other)
    assert live.pages is not None
    assert two.store.space("model").pool.free >= live.pages.missing(live.capacity)
    two.feed(live, tokens(6000, 380))
    assert two.store.nbytes <= two.store.budget
    two.store.retire(live)


def test_a_hot_cache_that_makes_way_may_leave_the_very_blocks(open_life: Open) -> None:
    """Two have computed the same: a request relies on one, the other goes for its blocks."""
    two = open_life("paged", budget=2 * kv.SLAB_BYTES)
    lives = [two.store.admit("model", two.plan(tokens(0, 100), owner)) for owner in "ab"]
    lives.append(two.store.admit("model", two.plan(tokens(5000, 100), "d")))
    for live in lives:
        two.feed(live, unpack(live.prompt))
        two.store.retire(live)
    one = open_life("paged")
    one.talk(tokens(0, 200), "a")
    one.write()
    plan = two.plan(tokens(0, 220), "c")
    assert plan.fetch is not None and plan.matched == 100
    live = two.begin(plan)
    assert (plan.matched, plan.fetched) == (200, 100)
    two.store.retire(live)


def test_blocks_without_keys_that_lead_nowhere_do_not_stay(open_life: Open) -> None:
    """C17: the checkpoint is gone from disk, or there is no room for it."""
    one = open_life("states alone")
    one.talk(tokens(0, 100), "a")
    one.write()
    two = open_life("states alone", budget=100_000)
    plan = two.plan(tokens(0, 120))
    assert plan.fetch is not None
    for checkpoint in two.store.room.snapshots:
        two.store.space("model").forget(checkpoint)
    two.store.budget = 45_000  # a sequence, and less than a checkpoint's three times
    live = two.begin(plan)
    assert (plan.matched, len(two.store.index)) == (0, 0)
    two.store.drop(live)
    three = open_life("states alone")
    plan = three.plan(tokens(0, 120))
    assert plan.fetch is not None
    plan.fetch = without_states(plan.fetch)
    live = three.begin(plan)
    assert (plan.matched, len(three.store.index)) == (0, 0)
    three.store.drop(live)


def without_states(fetch: Fetch) -> Fetch:
    """As if the checkpoint had gone before it was read."""
    blocks, _, seconds = fetch.read.result(PATIENCE_S)
    return replace(fetch, read=shelf._behind(lambda: (blocks, [], seconds)))


# --- damage -----------------------------------------------------------------------------------


def delete(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 2, len(data), 97):
        data[at] ^= 1
    path.write_bytes(data)


def foreign(path: Path) -> None:
    path.write_bytes(b"something else of somebody's " * 1000)


@pytest.mark.parametrize("damage", [delete, truncate, flip, foreign])
@every_kind
def test_a_damaged_shard_costs_what_was_in_it(
    open_life: Open,
    folder: Path,
    kind: str,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 100), "a", marks=(40,))
    one.write()
    for path in shards(folder):
        damage(path)
    two = open_life(kind)
    plan = two.talk(tokens(0, 120), "b", marks=(40,))
    assert plan.matched <= 100
    assert plan.matched == plan.fetched == 0 or damage in (truncate, flip)
    two.write()
    three = open_life(kind)
    assert three.talk(tokens(0, 121), "c").matched == 120
    assert warnings(caplog) == []


@every_kind
def test_bytes_that_are_sound_and_something_else_are_a_miss(open_life: Open, kind: str) -> None:
    """Of another format, or written by another who had the same ids."""
    one = open_life(kind)
    links = Links.of(root_id("model", ""), pack(tokens(0, 100)))
    entries = list(links.entries(0, [memoryview(b"no block")] * 7))
    state = Entry(links.state(96), links.ids[5], "state", 96, 96, b"", b"no checkpoint")
    assert one.disk.put(one.name, [*entries[:6], state]) == 7
    one.write()
    plan = one.plan(tokens(0, 110))
    assert plan.fetch is not None and plan.fetch.position == 96
    live = one.begin(plan)
    assert (plan.matched, plan.fetched) == (0, 0)
    one.store.retire(live)


@every_kind
def test_tokens_that_are_others_are_a_miss(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 100), "a", marks=(64,))
    one.write()
    two = open_life(kind)
    plan = two.plan(tokens(0, 110))
    assert plan.fetch is not None
    blocks, states, seconds = plan.fetch.read.result(PATIENCE_S)
    blocks[2] = replace(blocks[2], tokens=pack(tokens(7, 16)))
    plan.fetch = replace(plan.fetch, read=shelf._behind(lambda: (blocks, states, seconds)))
    live = two.begin(plan)
    assert (plan.matched, plan.fetched) == (0, 0)
    two.store.retire(live)


@every_kind
def test_a_folder_that_is_deleted_is_begun_anew(open_life: Open, folder: Path, kind: str) -> None:
    """C21: while a prompt is being read, and then while it is in use."""
    at_once = replace(QUICK, off_s=0.0)  # it may be deleted in the midst of a write
    one, two = open_life(kind, limits=at_once), open_life(kind, limits=at_once)
    one.talk(tokens(0, 100), "a")
    one.write()
    plan = two.plan(tokens(0, 120))
    remove(folder)
    live = two.begin(plan)
    assert plan.matched in (0, 100)
    two.store.retire(live)
    two.write()
    two.talk(tokens(0, 125), "b")
    two.write()
    assert open_life(kind).talk(tokens(0, 130), "c").matched == 125
    remove(folder)
    for end in (100, 110):
        one.talk(tokens(5000, end), "a")
        one.write()
    assert open_life(kind).talk(tokens(5000, 130), "c").matched == 110


def remove(folder: Path) -> None:
    while folder.exists():  # somebody may be writing into it
        shutil.rmtree(folder, ignore_errors=True)


@every_kind
def test_an_index_of_garbage_is_begun_anew(open_life: Open, folder: Path, kind: str) -> None:
    one = open_life(kind)
    one.talk(tokens(0, 100), "a")
    one.write()
    (folder / INDEX).write_bytes(b"garbage " * 4000)
    for suffix in ("-wal", "-shm"):
        (folder / f"{INDEX}{suffix}").unlink(missing_ok=True)
    two = open_life(kind)
    assert two.talk(tokens(0, 120), "b").matched == 0
    two.write()
    assert open_life(kind).talk(tokens(0, 130), "c").matched == 120


@every_kind
def test_a_full_disk_costs_what_could_not_be_written(
    open_life: Open, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    one = open_life(kind, clock=lambda: now[0])
    with monkeypatch.context() as patch:
        patch.setattr(shard, "save_file", full)
        one.talk(tokens(0, 100), "a")
        while one.store.write_behind(False):
            pass
        assert not one.disk.flush(PATIENCE_S)
        assert "No space left" in one.disk.state
        assert one.talk(tokens(0, 120), "a").matched == 100
        while one.store.write_behind(False):
            pass
    assert one.disk.count == 0
    now[0] += 61
    one.talk(tokens(0, 140), "a")
    one.write()
    assert one.disk.state == "ok"
    assert open_life(kind).talk(tokens(0, 150), "b").matched == 140


def full(*args: Any) -> None:
    raise OSError(28, "No space left on device")


@every_kind
def test_what_cannot_be_packed_costs_no_more_than_itself(
    open_life: Open, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = open_life(kind)
    with monkeypatch.context() as patch:
        patch.setattr(packer, "pack_blocks", full)
        one.talk(tokens(0, 100), "a")
        one.write()
    assert "is not kept on disk" in caplog.text
    one.talk(tokens(5000, 100), "b")
    one.write()
    two = open_life(kind)
    assert two.plan(tokens(0, 120)).fetch is None
    assert two.talk(tokens(5000, 120), "b").matched == 100


# --- reads that take their time ---------------------------------------------------------------


class Gate:
    """Reads wait until it is opened."""

    def __init__(self, life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open, self.begun = threading.Event(), threading.Event()
        get = life.disk.get

        def slow(namespace: str, ids: list[str]) -> list[Entry]:
            self.begun.set()
            assert self._open.wait(PATIENCE_S)
            return get(namespace, ids)

        monkeypatch.setattr(life.disk, "get", slow)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def slow(open_life: Open, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Life, Gate]]:
    """A life whose reads wait, of a hundred tokens that are there."""
    one = open_life("contiguous")
    one.talk(tokens(0, 100), "a")
    one.write()
    two = open_life("contiguous")
    gate = Gate(two, monkeypatch)
    yield two, gate
    gate.open()


def test_a_read_is_waited_for(slow: tuple[Life, Gate]) -> None:
    life, gate = slow
    plan = life.plan(tokens(0, 120))
    assert gate.begun.wait(PATIENCE_S)
    assert life.store.fetching(plan, 0.0)
    gate.open()
    live = life.begin(plan)
    assert plan.matched == 100
    life.store.retire(live)


def test_a_read_that_does_not_come_back_is_given_up(
    slow: tuple[Life, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    life, gate = slow
    plan = life.plan(tokens(0, 120))
    read = plan.fetch
    assert gate.begun.wait(PATIENCE_S)
    assert read is not None and life.store.fetching(plan, 0.0)
    monkeypatch.setattr(shelf, "LONGEST_S", 0.0)
    live = life.begin(plan, wait=0.0)
    assert (plan.matched, plan.fetched) == (0, 0)
    life.store.retire(live)
    life.store.forget("model", "model")
    life.load()
    plan = life.plan(tokens(0, 120))
    assert plan.fetch is None, "the next one does not wait for the same disk"
    life.store.release(plan)
    gate.open()
    read.read.result(PATIENCE_S)
    monkeypatch.undo()
    plan = life.plan(tokens(0, 120))
    assert plan.fetch is not None
    life.store.retire(life.begin(plan))
    assert plan.matched == 100


def test_what_was_read_is_held_by_its_plan_alone(slow: tuple[Life, Gate]) -> None:
    life, gate = slow
    plan = life.plan(tokens(0, 120))
    gate.open()
    assert plan.fetch is not None
    read = weakref.ref(plan.fetch.read)
    life.store.retire(life.begin(plan))
    until(lambda: read() is None)  # the thread that has read it ends


def test_a_request_that_leaves_leaves_its_read_behind(slow: tuple[Life, Gate]) -> None:
    life, gate = slow
    plan = life.plan(tokens(0, 120))
    fetch = plan.fetch
    life.store.release(plan)
    gate.open()
    assert plan.fetch is None and fetch is not None
    fetch.wait(PATIENCE_S)
    assert len(life.store.index) == 0


def test_what_is_read_for_a_model_that_has_gone_goes_nowhere(slow: tuple[Life, Gate]) -> None:
    life, gate = slow
    plan = life.plan(tokens(0, 120))
    life.store.forget("model", "model")
    gate.open()
    assert plan.fetch is not None
    plan.fetch.wait(PATIENCE_S)
    life.load()
    again = life.plan(tokens(0, 120))
    life.store.retire(life.begin(again))
    assert again.matched == 100


def test_a_read_that_fails_is_a_miss(
    open_life: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = open_life("contiguous")
    one.talk(tokens(0, 100), "a")
    one.write()
    two = open_life("contiguous")
    monkeypatch.setattr(two.disk, "get", full)
    assert two.talk(tokens(0, 120), "b").matched == 0
    assert warnings(caplog) == []


STUCK = """
import sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cache.test_shelf import Life, tokens
life = Life(Path(sys.argv[1]), "contiguous")
life.talk(tokens(0, 100), "a")
life.write()
life.store.forget("model", "model")
life.load()
life.disk.get = lambda *args: threading.Event().wait()
assert life.plan(tokens(0, 120)).fetch is not None
print("ended")
"""


def test_a_process_ends_whatever_it_reads(folder: Path) -> None:
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", STUCK, str(folder), tests]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "ended"), done.stderr


# --- models that come and go ------------------------------------------------------------------


@every_kind
def test_nothing_of_a_model_that_has_gone_is_written_under_its_name(
    open_life: Open, kind: str
) -> None:
    """C14: it comes back with other KV in the places where that of the old one lay."""
    one = open_life(kind)
    one.store.retire(one.begin(one.plan(tokens(0, 100), "a", marks=(40,))), carve=True)
    one.store.forget("model", "model")
    one.load()
    one.store.retire(one.begin(one.plan(tokens(5000, 100), "b", marks=(40,))), carve=True)
    one.write()
    two = open_life(kind)
    two.talk(tokens(0, 120), "c")
    assert two.talk(tokens(5000, 120), "d").matched == 100


def test_a_model_that_goes_is_not_held_by_what_is_to_be_packed(open_life: Open) -> None:  # C18
    one = open_life("contiguous")
    one.talk(tokens(0, 100), "a")
    one.store.forget("model", "model")
    assert not one.store.write_behind(False)


# --- forgetting -------------------------------------------------------------------------------


def traces(folder: Path, line: list[int], start: int = 0) -> list[int]:
    """Where blocks of these tokens begin that are still in any file, from ``start`` on."""
    held = [file.read_bytes() for file in folder.iterdir() if file.is_file()]
    pieces = {at: pack(line[at : at + BLOCK]) for at in range(start, len(line), BLOCK)}
    return [at for at, piece in pieces.items() if any(piece in data for data in held)]


def bytes_of(life: Life) -> dict[str, bytes]:
    """The data of all entries, by id; that of models without keys is empty."""
    names = [stored.id for stored in life.disk.entries(life.name)]
    found = [entry for name in names for entry in life.disk.get(life.name, [name])]
    return {entry.id: bytes(entry.data) for entry in found if entry.nbytes}


def left_in_shards(folder: Path, data: dict[str, bytes]) -> set[str]:
    held = [path.read_bytes() for path in shards(folder)]
    return {name for name, piece in data.items() if any(piece in all_ for all_ in held)}


@every_kind
def test_a_conversation_is_forgotten_with_all_its_bytes(
    open_life: Open, folder: Path, kind: str
) -> None:
    """Of all its turns, wherever they ended; its tokens are in no file either."""
    one = open_life(kind)
    line = tokens(1000, 200)
    for end in (37, 70, 101, 150):
        one.talk(line[:end], "a", marks=(20, end - 5))
        one.write()
    data = bytes_of(one)
    assert left_in_shards(folder, data) == set(data)
    assert traces(folder, line[:144]) == list(range(0, 144, 16))
    one.store.disown("a")
    one.store.forget_tokens("model", "", pack(line[:150]), 0)
    assert (one.store.lives(), len(one.store.index), len(one.store.room.snapshots)) == ([], 0, 0)
    one.write()
    assert one.disk.count == 0
    assert left_in_shards(folder, data) == set()
    assert traces(folder, line) == []
    assert open_life(kind).plan(line).fetch is None


@every_kind
def test_what_another_conversation_shares_stays(open_life: Open, folder: Path, kind: str) -> None:
    """In memory and on disk, to the last token that they share."""
    one = open_life(kind)
    common = tokens(1000, 75)
    mine, theirs = [*common, *tokens(2000, 60)], [*common, *tokens(3000, 60)]
    one.talk(mine, "a", marks=(75,))
    one.talk(theirs, "b", marks=(75,))
    one.write()
    one.store.disown("a")
    one.store.forget_tokens("model", "", pack(mine), 0)
    assert [live.owner for live in one.store.lives()] == ["b"]
    assert one.talk([*theirs, 7], "b").matched == 135
    assert one.talk([*mine, 7], "c").matched == 75
    one.store.disown("c")
    one.store.forget_tokens("model", "", pack([*mine, 7]), 0)
    one.write()
    assert traces(folder, mine, 80) == []
    two = open_life(kind)
    assert two.talk([*theirs, 8], "b").matched == 135
    third = open_life(kind)
    shared = 64 if kind in PLAIN else 75  # of a block that is whole, or at a checkpoint
    assert third.talk([*common, *tokens(4000, 30)], "d").matched == shared


@every_kind
def test_the_first_tokens_can_be_kept(open_life: Open, folder: Path, kind: str) -> None:
    """As when a response is deleted, and the one that it continued is not."""
    one = open_life(kind)
    line = tokens(1000, 150)
    one.talk(line[:70], "a")
    one.write()
    one.talk(line, "a")
    one.write()
    for _ in range(2):
        one.store.forget_tokens("model", "", pack(line), 70)
        one.write()
        assert traces(folder, line, 64) == []
        assert open_life(kind).talk(line, "c").matched == 70
        assert one.talk(line, "b").matched == 70


@every_kind
def test_what_is_not_packed_yet_is_not_written_after_it_was_forgotten(
    open_life: Open, folder: Path, kind: str
) -> None:
    one = open_life(kind)
    for end in (50, 90):
        one.store.retire(one.begin(one.plan(tokens(1000, end), "a")), carve=True)
    one.talk(tokens(1000, 30) + tokens(5000, 60), "b")
    one.store.forget_tokens("model", "", pack(tokens(1000, 90)), 0)
    one.write()
    assert traces(folder, tokens(1000, 90), 32) == []
    assert open_life(kind).talk(tokens(1000, 30) + tokens(5000, 70), "c").matched == 90


def test_another_s_block_that_begins_alike_stays(open_life: Open) -> None:
    """The end of what is forgotten may be known to others in the midst of a block of theirs."""
    one = open_life("contiguous")
    theirs = [*tokens(0, 40), *tokens(3000, 8)]
    one.store.retire(one.begin(one.plan(theirs, "b")), carve=True)
    one.store.forget_tokens("model", "", pack([*tokens(0, 44)]), 0)
    assert one.talk([*theirs, 7], "b").matched == 48


def test_another_salt_s_tokens_stay(open_life: Open) -> None:
    one = open_life("contiguous")
    one.talk(tokens(0, 100), "a")
    one.talk(tokens(0, 100), "b", salt="pepper")
    one.store.forget_tokens("model", "pepper", pack(tokens(0, 100)), 0)
    one.write()
    two = open_life("contiguous")
    assert two.plan(tokens(0, 120), salt="pepper").fetch is None
    assert two.talk(tokens(0, 120)).matched == 100


def test_what_a_request_relies_on_stays_in_memory(open_life: Open) -> None:
    one = open_life("contiguous")
    one.talk(tokens(0, 100), "a")
    waiting = one.plan(tokens(0, 120), "b")
    one.store.forget_tokens("model", "", pack(tokens(0, 100)), 0)
    one.store.retire(one.begin(waiting))
    assert waiting.matched == 100


# --- anything in any order --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
@every_kind
def test_whatever_happens_what_is_there_is_sound(
    open_life: Open, folder: Path, kind: str, seed: int
) -> None:
    """Lives come and go, budgets change, some is forgotten, shards are damaged."""
    draw = random.Random(f"{seed} {kind}")
    stems = [[draw.randrange(100) for _ in range(draw.randrange(60, 250))] for _ in range(3)]
    budgets = (500_000, 900_000, 64 * MIB)
    lives = [open_life(kind, budget=draw.choice(budgets)) for _ in range(2)]
    waiting: list[tuple[Life, Plan]] = []
    running: list[tuple[Life, Live]] = []
    fetched = 0
    for _ in range(150):
        life = draw.choice(lives)
        act = draw.choice(["plan"] * 3 + ["start"] * 3 + ["end"] * 3 + ["write", "rare"])
        if act == "plan" and len(waiting) < 4:
            stem = draw.choice(stems)
            prompt = stem[: draw.randrange(1, len(stem) + 1)]
            prompt += [draw.randrange(100) for _ in range(draw.choice((0, 1, 20)))]
            marks = tuple(draw.sample(range(10, 250, 10), 4))
            waiting.append((life, life.plan(prompt, draw.choice([None, "a", "b"]), marks)))
        elif act == "start" and waiting:
            life, plan = waiting.pop(0)
            try:
                running.append((life, life.begin(plan)))
            except NoRoom:
                life.store.release(plan)
            fetched += plan.fetched
        elif act == "end" and running:
            life, live = running.pop(draw.randrange(len(running)))
            life.store.retire(live, carve=draw.random() < 0.3)
        elif act == "write":
            life.write()
        elif act == "rare":
            rare = draw.choice(["reload", "new", "forget", "budget", "damage"])
            if rare == "reload" and not any(other is life for other, _ in (*waiting, *running)):
                life.store.forget("model", "model")
                life.load()
            elif rare == "new":
                lives[draw.randrange(2)] = open_life(kind, budget=draw.choice(budgets))
            elif rare == "forget":
                life.store.forget_tokens(
                    "model", "", pack(draw.choice(stems)), draw.choice((0, 40))
                )
            elif rare == "budget":
                life.store.budget = draw.choice(budgets)
            elif rare == "damage" and (paths := shards(folder)):
                draw.choice([delete, truncate, flip])(draw.choice(paths))
        for live in life.store.lives():
            life.assert_sound(live)
    for life, plan in waiting:
        life.store.release(plan)
    for life, live in running:
        life.store.retire(live)
    assert fetched
