"""KV that stays in the block pool: nothing is copied, and what is in use stays where it is read."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import pytest

from mlxnb.cache.live import Live
from mlxnb.cache.paged_space import PagedSpace, table_of
from mlxnb.cache.pool import BLOCK, SLAB
from mlxnb.cache.store import PrefixCache
from mlxnb.records.tokens import unpack

from .kv import SLAB_BYTES, NoRoom, assert_sound, begun, feed, planned, real_bytes, store_of, talk

LONG = 4000


@pytest.fixture
def store() -> PrefixCache:
    return store_of(64 * SLAB_BYTES, paged=True)


def space_of(store: PrefixCache) -> PagedSpace:
    space = store.space("model")
    assert isinstance(space, PagedSpace)
    return space


def tokens(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def started(store: PrefixCache, prompt: list[int], owner: str | None = None) -> Live:
    return begun(store, planned(store, prompt, owner))


def decode(store: PrefixCache, live: Live, token: int) -> None:
    """What a group does for a token."""
    store.room.reserve(live, live.length + 2)
    feed(live, [token])


# --- bytes ------------------------------------------------------------------------------------


def test_two_conversations_hold_their_common_prefix_once(store: PrefixCache) -> None:
    talk(store, [*tokens(0, LONG), *tokens(9000, 20)], "a")
    one = store.nbytes
    talk(store, [*tokens(0, LONG), *tokens(9500, 20)], "b")
    assert store.nbytes <= 1.1 * one
    assert len(store.lives()) == 2


def test_rows_of_any_length_hold_no_more_than_their_sum(store: PrefixCache) -> None:
    long, short = started(store, tokens(0, LONG)), started(store, tokens(5000, 500))
    each = (long.length + short.length) * space_of(store).pool.token_bytes
    assert real_bytes(store) == store.nbytes <= 1.1 * each


def test_a_hit_allocates_nothing(store: PrefixCache) -> None:
    talk(store, tokens(0, LONG - 100), "a")
    plan = planned(store, [*tokens(0, LONG - 105), 7], "b")
    space = space_of(store)
    space.pages.settle()
    before, slabs, free = mx.get_active_memory(), space.pool.slabs, space.pool.free
    live = store.admit("model", plan)
    assert live.length == LONG - 105
    assert mx.get_active_memory() <= before
    assert (space.pool.slabs, space.pool.free) == (slabs, free)
    assert store.copied_bytes == 0


def test_a_tail_that_is_shared_costs_a_block_when_it_is_written(store: PrefixCache) -> None:
    talk(store, tokens(0, 40), "a")
    live = started(store, [*tokens(0, 40), 7], "b")
    own = set(table_of(live)) - set(table_of(store.lives()[0]))
    assert len(own) == 1
    for each in store.lives():
        assert_sound(each)


def test_a_hot_cache_s_bytes_are_of_the_blocks_it_alone_holds(store: PrefixCache) -> None:
    talk(store, tokens(0, 5 * BLOCK), "a")
    (hot,) = store.lives()
    block = BLOCK * space_of(store).pool.token_bytes
    assert space_of(store).bytes_of(hot) == 5 * block
    talk(store, [*tokens(0, 3 * BLOCK), 7], "b")
    assert space_of(store).bytes_of(hot) == 2 * block


# --- sharing ----------------------------------------------------------------------------------


def test_a_running_sequence_goes_on_beside_those_that_share_its_tail(store: PrefixCache) -> None:
    first = started(store, tokens(0, 21))
    second = started(store, [*tokens(0, 21), 500])
    third = started(store, [*tokens(0, 20), 600])
    for number in range(40):
        for live in (first, second, third):
            decode(store, live, 700 + number)
    for live in (first, second, third):
        assert_sound(live)


def test_equal_blocks_that_were_computed_twice_become_one(store: PrefixCache) -> None:
    first = started(store, tokens(0, 64))
    space = space_of(store)
    second = store.admit("model", store.plan("model", "", b"".join([bytes(first.prompt)]), None))
    store.drop(second)
    # both began before either had anything
    other = Live("model", first.root, None, first.prompt, token_bytes=first.token_bytes)
    space.lives.append(other)
    store.room.reserve(other, 66)
    other.hold(space.fresh(66))
    feed(other, tokens(0, 64))
    assert not set(table_of(first)) & set(table_of(other))
    store.retire(first)
    store.retire(other)
    for live in list(store.lives()):
        store.room.carve(live, live.length)
    assert table_of(first) == table_of(other)
    assert_sound(other)


def test_a_short_block_that_must_stay_and_its_longer_self_are_both_filed(
    store: PrefixCache,
) -> None:
    live = started(store, tokens(0, 30))
    store.room.carve(live, 20)
    short = next(b for b in store.index if b.length == 4)
    short.pinned = True
    assert store.room.carve(live, 30) == 30
    space = space_of(store)
    assert sorted(b.length for b in space.blocks.values()) == [4, 14, 16]
    assert all(block.slot == slot for slot, block in space.blocks.items())
    store.drop(live)
    follow = started(store, [*tokens(0, 30), 9])
    assert_sound(follow)


# --- budget -----------------------------------------------------------------------------------


def test_what_a_running_sequence_reads_is_never_taken() -> None:
    store = store_of(4 * SLAB_BYTES, paged=True)
    running = started(store, tokens(0, 200))
    for number in range(12):
        talk(store, tokens(1000 * (1 + number), 150), f"s{number}")
        assert store.nbytes <= store.budget
        assert_sound(running)
    assert len(table_of(running)) == -(-200 // BLOCK)


def test_what_is_pinned_is_never_taken() -> None:
    store = store_of(4 * SLAB_BYTES, paged=True)
    talk(store, tokens(0, 200), "a")
    (hot,) = store.lives()
    store.hand.pin(hot.id)
    for number in range(12):
        talk(store, tokens(1000 * (1 + number), 150), f"s{number}")
    assert hot in store.lives() and hot.length == 200
    assert_sound(hot)


def test_growth_that_was_promised_is_there() -> None:
    """Others come and go until nothing is left for them; who runs still grows as reserved."""
    store = store_of(3 * SLAB_BYTES, paged=True)
    running = started(store, tokens(0, 100))
    store.room.reserve(running, 400)
    others = []
    with pytest.raises(NoRoom):
        for number in range(99):
            others.append(started(store, tokens(1000 * (1 + number), 40)))
    feed(running, tokens(5000, 300))
    assert store.nbytes <= store.budget
    for live in (running, *others):
        assert_sound(live)


def test_too_much_is_refused_and_nothing_is_evicted() -> None:
    store = store_of(3 * SLAB_BYTES, paged=True)
    talk(store, tokens(0, 200), "a")
    held = [hot.length for hot in store.lives()]
    with pytest.raises(NoRoom):
        store.admit("model", planned(store, tokens(1000, 3 * 256 + 1)))
    assert [hot.length for hot in store.lives()] == held
    assert store.nbytes <= store.budget


@pytest.mark.parametrize("what", ["running", "hot", "filed"])
def test_blocks_move_with_all_who_read_them(store: PrefixCache, what: str) -> None:
    """Slabs are given back while the blocks in them are in use."""
    lives = [started(store, tokens(1000 * n, 17 * BLOCK - 3)) for n in range(6)]
    kept = lives[1::2]
    for live in lives[::2]:
        store.drop(live)
    for live in kept:
        if what != "running":
            store.retire(live, carve=what == "filed")
    space = space_of(store)
    before = space.pool.slabs
    while space.compact():
        pass
    assert space.pool.slabs < before
    assert space.pool.slabs <= -(-(3 * 17 + space.promised()) // SLAB) + 1
    for n, live in enumerate(kept):
        if what == "filed":
            live = started(store, [*tokens(1000 * (2 * n + 1), 17 * BLOCK - 3), 7])
            assert live.length == 17 * BLOCK - 2
        decode(store, live, 9)
        assert_sound(live)


def test_all_slots_are_free_when_all_is_gone(store: PrefixCache) -> None:
    lives = [started(store, [*tokens(0, 50), *tokens(100 * n, 30)]) for n in range(1, 5)]
    for live in lives[:2]:
        store.retire(live, carve=True)
    for live in lives[2:]:
        store.drop(live)
    store.budget = 0
    assert store.nbytes == 0 and not store.lives() and not len(store.index)


# --- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [PrefixCache.drop, PrefixCache.retire])
def test_a_failed_call_leaves_others_sound(
    store: PrefixCache, act: Callable[[PrefixCache, Live], None]
) -> None:
    good, bad = started(store, tokens(0, 30)), started(store, tokens(1000, 30))
    keys = mx.zeros((1, 2, 1, 4))
    assert bad.caches is not None
    bad.caches[0].update_and_fetch(keys, keys)  # one layer of two, never evaluated
    store.failed("model")
    act(store, bad)  # a cache whose layers disagree is not kept
    decode(store, good, 7)
    assert_sound(good)
    assert bad not in store.lives()
    after = started(store, tokens(2000, 30))
    assert_sound(after)
    assert unpack(bytes(after.tokens)) == tokens(2000, 30)
