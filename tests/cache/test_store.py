"""The prefix cache: what is reused, what it costs, what goes and what stays."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest

from mlxnb import mlxlm
from mlxnb.cache.layout import Layout
from mlxnb.cache.paged_space import PagedSpace
from mlxnb.cache.pool import BLOCK
from mlxnb.cache.space import Space
from mlxnb.cache.store import MAX_HOT, PrefixCache
from mlxnb.errors import ModelUnloaded, UnknownBlock
from mlxnb.mlxlm import STEP
from mlxnb.records.tokens import pack

from .kv import (
    LAYERS,
    SLAB_BYTES,
    TOKEN,
    Model,
    NoRoom,
    assert_sound,
    begun,
    feed,
    planned,
    real_bytes,
    store_of,
    talk,
)

HOT = STEP * TOKEN
"""Bytes of the smallest live cache."""
ROOMY = 64 * HOT


@pytest.fixture(params=["contiguous", "paged"])
def store(request: pytest.FixtureRequest) -> PrefixCache:
    return store_of(ROOMY, paged=request.param == "paged")


@pytest.fixture
def contiguous() -> PrefixCache:
    return store_of(ROOMY)


def tokens(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def there(store: PrefixCache, *prompt: Any, **of: Any) -> int:
    """What a plan would reuse; it keeps nothing."""
    plan = planned(store, *prompt, **of)
    store.release(plan)
    return plan.matched


# --- what is reused ---------------------------------------------------------------------------


def test_the_first_prompt_is_cold(store: PrefixCache) -> None:
    plan = talk(store, tokens(0, 50))
    assert (plan.matched, plan.live, plan.own) == (0, None, False)


def test_a_session_continues_its_own_cache_without_a_copy(store: PrefixCache) -> None:
    talk(store, tokens(0, 50), owner="a")
    plan = talk(store, tokens(0, 80), owner="a")
    assert (plan.matched, plan.takeover, plan.own) == (50, True, True)
    assert store.copied_bytes == 0
    assert len(store.lives()) == 1


def test_the_same_prompt_again_leaves_one_token_to_compute(store: PrefixCache) -> None:  # C1
    talk(store, tokens(0, 50), owner="a")
    assert talk(store, tokens(0, 50), owner="a").matched == 49


def test_a_prompt_of_one_token_reuses_nothing(store: PrefixCache) -> None:  # C1
    talk(store, [7], owner="a")
    assert talk(store, [7], owner="a").matched == 0


def test_another_session_copies_to_the_token(store: PrefixCache) -> None:
    talk(store, tokens(0, 50), owner="a")
    plan = talk(store, [*tokens(0, 45), *tokens(500, 10)], owner="b")
    assert (plan.matched, plan.takeover, plan.own) == (45, False, False)
    assert {live.owner for live in store.lives()} == {"a", "b"}


def test_a_copy_goes_through_blocks_for_others_to_share(contiguous: PrefixCache) -> None:
    store = contiguous
    talk(store, tokens(0, 50), owner="a")
    talk(store, tokens(0, 60), owner="b")
    copied = store.copied_bytes
    assert copied == 2 * 50 * TOKEN  # into blocks, and out of them
    talk(store, tokens(0, 49), owner="c")
    assert store.copied_bytes == copied + 48 * TOKEN


def test_what_a_rewind_gives_up_goes_into_blocks(store: PrefixCache) -> None:  # C4
    talk(store, tokens(0, 100), owner="a")
    plan = talk(store, [*tokens(0, 60), *tokens(500, 10)], owner="a")
    assert (plan.matched, plan.takeover) == (60, True)
    assert talk(store, tokens(0, 120), owner="b").matched == 100


def test_a_long_cache_is_not_cut_down_for_a_short_start(store: PrefixCache) -> None:
    talk(store, tokens(0, 200), owner="a")
    plan = talk(store, [*tokens(0, 20), *tokens(500, 10)], owner="a")
    assert (plan.matched, plan.takeover, plan.own) == (20, False, True)
    assert talk(store, tokens(0, 220), owner="a").matched == 200


def test_nobody_takes_over_what_another_session_owns(store: PrefixCache) -> None:
    talk(store, tokens(0, 50), owner="a")
    assert not talk(store, tokens(0, 80), owner="b").takeover
    assert not talk(store, tokens(0, 80)).takeover


def test_a_disowned_cache_is_anybody_s(store: PrefixCache) -> None:
    talk(store, tokens(0, 50), owner="a")
    store.disown("a")
    plan = talk(store, tokens(0, 80), owner="b")
    assert (plan.takeover, plan.own) == (True, False)


def test_of_equal_caches_a_session_takes_its_own(store: PrefixCache) -> None:
    talk(store, tokens(0, 50))
    talk(store, tokens(0, 50), owner="a")
    plan = planned(store, tokens(0, 80), owner="a")
    assert plan.live is not None and plan.live.owner == "a"


def test_salts_are_apart(store: PrefixCache) -> None:
    talk(store, tokens(0, 50), salt="one")
    assert talk(store, tokens(0, 60), salt="two").matched == 0
    assert talk(store, tokens(0, 60), salt="one").matched == 50


def test_models_are_apart(store: PrefixCache) -> None:  # C14
    store.register("other", "other", Model(), Layout(LAYERS))
    talk(store, tokens(0, 50))
    assert talk(store, tokens(0, 50), key="other").matched == 0


def test_a_shorter_prompt_filed_later_hides_nothing(store: PrefixCache) -> None:  # C4
    live = begun(store, planned(store, tokens(0, 100)))
    store.retire(live, carve=True)
    for length in (1, 5, 17, 33, 64):
        store.retire(begun(store, planned(store, tokens(0, length), owner="b")), carve=True)
    assert talk(store, tokens(0, 120), owner="c").matched == 100


def test_a_tail_gives_way_to_the_block_that_begins_with_it(store: PrefixCache) -> None:
    store.retire(begun(store, planned(store, tokens(0, 20))), carve=True)
    store.retire(begun(store, planned(store, tokens(0, 40))), carve=True)
    assert sorted(block.length for block in store.index) == [8, BLOCK, BLOCK]


@pytest.mark.parametrize("keep", ["pinned", "planned"])
def test_a_tail_that_is_pinned_or_relied_on_stays(store: PrefixCache, keep: str) -> None:
    store.retire(begun(store, planned(store, tokens(0, 20))), carve=True)
    (tail,) = [block for block in store.index if block.length == 4]
    if keep == "pinned":
        store.hand.pin(tail.id)
    else:
        assert planned(store, [*tokens(0, 20), 500]).match.tail is tail
    store.retire(begun(store, planned(store, tokens(0, 40))), carve=True)
    assert store.index.get(tail.id) is tail
    assert there(store, tokens(0, 50)) == 40


# --- plans keep what they promise -------------------------------------------------------------


def test_two_requests_cannot_claim_one_cache(store: PrefixCache) -> None:
    talk(store, tokens(0, 50))
    one = planned(store, tokens(0, 60))
    two = planned(store, [*tokens(0, 50), *tokens(500, 20)])
    assert (one.takeover, two.takeover) == (True, False)
    assert begun(store, two).length == 70
    assert begun(store, one).length == 60
    assert two.matched == one.matched == 50


def test_a_claim_survives_an_attempt_that_found_no_room(store: PrefixCache) -> None:
    talk(store, tokens(0, 50), owner="a")
    plan = planned(store, tokens(0, 50 * STEP), owner="a")
    store.budget = 8 * HOT
    with pytest.raises(NoRoom):
        store.admit("model", plan)
    assert plan.live is not None and plan.live.claim is plan
    assert not planned(store, tokens(0, 60), owner="a").takeover


def test_a_released_plan_can_be_released_again(store: PrefixCache) -> None:
    talk(store, tokens(0, 50), owner="a")
    plan = planned(store, tokens(0, 60), owner="a")
    store.release(plan)
    store.release(plan)
    assert [live.pins for live in store.lives()] == [0]
    assert planned(store, tokens(0, 60), owner="a").takeover


def test_a_plan_follows_its_kv_into_blocks(store: PrefixCache) -> None:
    talk(store, tokens(0, 100), owner="a")
    waiting = planned(store, tokens(0, 120), owner="b")
    talk(store, [*tokens(0, 60), *tokens(500, 10)], owner="a")
    assert (waiting.live, waiting.matched) == (None, 100)
    live = begun(store, waiting)
    assert waiting.matched == 100
    assert_sound(live)


def test_a_plan_grows_with_what_has_been_computed_since(store: PrefixCache) -> None:
    waiting = planned(store, tokens(0, 120), owner="b")
    talk(store, tokens(0, 100), owner="a")
    begun(store, waiting)
    assert waiting.matched == 100


def test_a_plan_loses_what_fails(store: PrefixCache) -> None:
    talk(store, tokens(0, 100), owner="a")
    waiting = planned(store, tokens(0, 120), owner="b")
    live = begun(store, planned(store, tokens(0, 110), owner="a"))
    store.drop(live)
    assert waiting.matched == 0
    assert_sound(begun(store, waiting))


def test_what_a_plan_relies_on_is_not_evicted() -> None:
    store = store_of(4 * HOT)
    talk(store, tokens(0, 50), owner="a")
    plan = planned(store, tokens(0, 60), owner="a")
    for n in range(1, 20):
        talk(store, tokens(1000 * n, 50), owner=f"s{n}")
    assert begun(store, plan).length == 60
    assert plan.matched == 50


def test_blocks_that_a_plan_relies_on_are_not_evicted() -> None:
    store = store_of(4 * HOT)
    store.retire(begun(store, planned(store, tokens(0, 50))), carve=True)
    plan = planned(store, tokens(0, 60))
    assert plan.live is None
    for n in range(1, 20):
        talk(store, tokens(1000 * n, 50), owner=f"s{n}")
    begun(store, plan)
    assert plan.matched == 50


def test_a_plan_without_a_promise_keeps_nothing() -> None:
    store = store_of(2 * HOT)
    talk(store, tokens(0, 50), owner="a")
    plan = store.plan("model", "", pack(tokens(0, 60)), "a", promise=False)
    talk(store, tokens(1000, STEP + 5), owner="b")
    begun(store, plan)
    assert plan.matched == 0


def test_a_plan_without_a_promise_takes_what_is_there(store: PrefixCache) -> None:
    talk(store, tokens(0, 50), owner="a")
    plan = store.plan("model", "", pack(tokens(0, 60)), "a", promise=False)
    begun(store, plan)
    assert (plan.matched, plan.takeover, plan.own) == (50, True, True)


def test_without_a_promise_reuse_gives_way_to_running_at_all() -> None:
    """The other's cache and a copy of it do not fit side by side; a cold run does."""
    store = store_of(5 * HOT)
    talk(store, tokens(0, 3 * STEP - 10), owner="a")
    prompt = tokens(0, 3 * STEP - 5)
    with pytest.raises(NoRoom):
        store.admit("model", planned(store, prompt, owner="b"))
    store.release(planned(store, prompt, owner="b"))
    for live in store.lives():
        for kept in list(live.plans):
            store.release(kept)
    plan = store.plan("model", "", pack(prompt), "b", promise=False)
    assert_sound(begun(store, plan))
    assert plan.matched == 0
    assert store.nbytes <= store.budget


def test_a_model_that_is_gone_cannot_be_planned_for(store: PrefixCache) -> None:
    store.forget("model", "model")
    with pytest.raises(ModelUnloaded):
        planned(store, [1, 2])


# --- running sequences ------------------------------------------------------------------------


def test_a_running_prefix_is_awaited_until_it_is_there(store: PrefixCache) -> None:
    first, second = planned(store, tokens(0, 100), "a"), planned(store, tokens(0, 90), "b")
    live = store.admit("model", first)
    assert store.awaited("model", second) is live
    feed(live, tokens(0, 50))
    assert store.awaited("model", second) is live
    feed(live, tokens(50, 50))
    assert store.awaited("model", second) is None
    begun(store, second)
    assert second.matched == 89


def test_little_is_not_waited_for(store: PrefixCache) -> None:
    store.admit("model", planned(store, tokens(0, 100), "a"))
    other = planned(store, [*tokens(0, BLOCK - 1), *tokens(500, 50)], "b")
    assert store.awaited("model", other) is None


def test_a_dead_one_is_not_waited_for(store: PrefixCache) -> None:
    live = store.admit("model", planned(store, tokens(0, 100), "a"))
    other = planned(store, tokens(0, 90), "b")
    store.drop(live)
    assert store.awaited("model", other) is None


def test_a_row_of_a_batch_can_be_copied_from(store: PrefixCache) -> None:
    live = begun(store, planned(store, tokens(0, 100), "a"))
    caches = live.caches
    live.caches, live.copy = None, lambda: caches
    plan = planned(store, tokens(0, 120), "b")
    other = begun(store, plan)
    assert plan.matched == 100
    assert_sound(other)


def test_kv_that_is_not_its_tokens_is_not_kept(store: PrefixCache) -> None:  # C2
    live = begun(store, planned(store, tokens(0, 50), "a"))
    live.tokens.extend(pack([1]))
    store.retire(live)
    assert (store.faults, store.lives()) == (1, [])
    assert talk(store, tokens(0, 50), "a").matched == 0


def test_a_write_that_fails_takes_no_slots(
    contiguous: PrefixCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = contiguous
    live = begun(store, planned(store, tokens(0, 50), "a"))

    def fail(*_: Any) -> None:
        raise MemoryError

    pool = store.space("model").pool
    monkeypatch.setattr(pool, "write", fail)
    with pytest.raises(MemoryError):
        store.retire(live, carve=True)
    assert len(store.index) == 0 and pool.free == pool.slabs * 16
    assert live.pins == 0


def test_a_cold_plan_is_matched_by_nobody(store: PrefixCache) -> None:
    live = store.admit("model", store.cold_plan(pack(tokens(0, 50))))
    feed(live, tokens(0, 50))
    assert there(store, tokens(0, 60)) == 0
    other = planned(store, tokens(0, 60))
    assert store.awaited("model", other) is None


def test_a_model_that_cannot_be_rewound_files_nothing(store: PrefixCache) -> None:
    store.register("other", "other", Model(), None)
    plan = store.plan("other", "", pack(tokens(0, 50)), "a")
    live = store.admit("other", plan)
    assert live.caches is not None and live.length == 0
    live.tokens.extend(pack(tokens(0, 50)))
    second = store.plan("other", "", pack(tokens(0, 60)), "b")
    assert store.awaited("other", second) is None
    assert store.admit("other", second).length == 0
    store.retire(live)
    assert store.plan("other", "", pack(tokens(0, 60)), "a").matched == 0


def test_kv_of_unknown_size_is_counted_and_bounded(store: PrefixCache) -> None:  # C17
    store.register("other", "other", Model(), None)
    live = store.admit("other", store.plan("other", "", pack(tokens(0, 50)), "a"))
    feed(live, tokens(0, 50))
    store.room.reserve(live, 50)  # nothing is known
    assert live.reserved == 0
    assert live.caches is not None
    store.room.count(live, mlxlm.nbytes(live.caches))
    assert live.reserved == HOT == store.nbytes
    store.budget = 2 * HOT
    feed(live, tokens(50, 3 * STEP))
    with pytest.raises(NoRoom):
        store.room.count(live, mlxlm.nbytes(live.caches))


# --- the budget -------------------------------------------------------------------------------


def test_a_live_cache_has_the_room_that_is_reserved(contiguous: PrefixCache) -> None:
    store = contiguous
    live = begun(store, planned(store, tokens(0, 50), "a"))
    assert live.reserved == HOT
    for count in range(50, STEP - 2):
        feed(live, [count])
    store.room.reserve(live, STEP + 1)
    assert live.reserved == 2 * HOT
    feed(live, tokens(0, 4))
    assert real_bytes(store) == store.nbytes == 2 * HOT


def test_more_than_the_budget_is_refused_and_nothing_is_evicted() -> None:
    store = store_of(4 * HOT)
    talk(store, tokens(0, 50), owner="a")
    held = store.nbytes
    with pytest.raises(NoRoom, match="in use or pinned"):
        store.admit("model", planned(store, tokens(1000, 5 * STEP)))
    assert store.nbytes == held
    assert there(store, tokens(0, 60), owner="a") == 50


def test_old_goes_before_new() -> None:
    store = store_of(4 * HOT)
    for n in range(5):
        talk(store, tokens(1000 * n, 50), owner=f"s{n}")
    matched = [there(store, tokens(1000 * n, 60), owner=f"s{n}") for n in range(5)]
    assert matched[0] == 0 and matched[4] == 50
    assert matched == sorted(matched)


def test_what_was_used_last_stays() -> None:
    store = store_of(4 * HOT)
    for n in range(4):
        talk(store, tokens(1000 * n, 50), owner=f"s{n}")
    talk(store, tokens(0, 60), owner="s0")
    talk(store, tokens(5000, 50), owner="s5")
    assert there(store, tokens(0, 70), owner="s0") == 60
    assert there(store, tokens(1000, 60), owner="s1") == 0


def test_a_pinned_hot_cache_stays() -> None:
    store = store_of(4 * HOT)
    talk(store, tokens(0, 50), owner="a")
    store.hand.pin(store.lives()[0].id)
    for n in range(1, 20):
        talk(store, tokens(1000 * n, 50), owner=f"s{n}")
    assert there(store, tokens(0, 60), owner="a") == 50


def test_a_pinned_block_stays_with_all_before_it() -> None:
    store = store_of(4 * HOT)
    store.retire(begun(store, planned(store, tokens(0, 3 * BLOCK))), carve=True)
    second = next(block for block in store.index if block.start == BLOCK)
    store.hand.pin(second.id[:12])
    for n in range(1, 20):
        talk(store, tokens(1000 * n, 50), owner=f"s{n}")
    assert there(store, tokens(0, 60)) == 2 * BLOCK
    store.hand.pin(second.id, pinned=False)
    for n in range(21, 40):
        talk(store, tokens(1000 * n, 50), owner=f"s{n}")
    assert there(store, tokens(0, 60)) == 0


@pytest.mark.parametrize("name", ["", "nothing", "h0"])
def test_pinning_an_unknown_block_says_so(store: PrefixCache, name: str) -> None:
    talk(store, tokens(0, 50))
    with pytest.raises(UnknownBlock):
        store.hand.pin(name)


def test_many_hot_caches_become_blocks(store: PrefixCache) -> None:
    for n in range(MAX_HOT + 3):
        talk(store, tokens(1000 * n, 50), owner=f"s{n}")
    assert len(store.lives()) == MAX_HOT
    assert [live.owner for live in store.lives()] == [f"s{n}" for n in range(3, MAX_HOT + 3)]
    assert there(store, tokens(0, 60), owner="s0") == 50


def test_an_evicted_hot_cache_leaves_what_fits_into_free_slots() -> None:
    store = store_of(3 * HOT)
    store.retire(begun(store, planned(store, tokens(0, 2 * BLOCK))), carve=True)
    talk(store, tokens(1000, 50), owner="a")
    talk(store, tokens(2000, 50), owner="b")
    talk(store, tokens(3000, 50), owner="c")
    assert there(store, tokens(1000, 60), owner="a") == 50
    assert store.nbytes <= store.budget


def test_a_lower_budget_is_held_at_once() -> None:
    store = store_of(16 * HOT)
    for n in range(8):
        talk(store, tokens(1000 * n, 50), owner=f"s{n}")
    store.budget = 3 * HOT
    assert real_bytes(store) == store.nbytes <= 3 * HOT
    assert there(store, tokens(7000, 60), owner="s7") == 50


def test_a_budget_below_what_runs_is_held_when_that_ends() -> None:
    store = store_of(16 * HOT)
    live = begun(store, planned(store, tokens(0, 50), "a"))
    talk(store, tokens(1000, 50), owner="b")
    store.budget = HOT // 2
    assert store.nbytes == live.reserved
    store.retire(live)
    assert store.nbytes == 0


def test_another_model_s_blocks_make_room() -> None:
    store = store_of(3 * HOT)
    store.register("other", "other", Model(), Layout(LAYERS))
    for n in range(4):
        store.retire(begun(store, planned(store, tokens(1000 * n, 60))), carve=True)
    talk(store, tokens(0, 2 * STEP), owner="a", key="other")
    assert store.nbytes <= store.budget
    assert there(store, tokens(0, 2 * STEP), owner="a", key="other") == 2 * STEP - 1


def test_another_model_gives_up_no_more_than_a_slab_for_a_slab(contiguous: PrefixCache) -> None:
    store = contiguous
    store.register("other", "other", Model(), Layout(LAYERS))
    for n in range(4):
        live = begun(store, planned(store, tokens(1000 * n, STEP - 2), key="other"), "other")
        store.retire(live, carve=True)
    live = begun(store, planned(store, tokens(0, STEP - 2)))
    store.budget = store.nbytes
    store.retire(live, carve=True)
    assert there(store, tokens(0, STEP)) == STEP - 2
    assert len(store.space("other").blocks) == 3 * 16


def test_free_slots_of_a_slab_are_put_together() -> None:
    store = store_of(64 * HOT)
    for n in range(8):
        store.retire(begun(store, planned(store, tokens(1000 * n, 4 * BLOCK))), carve=True)
    space = store.space("model")
    assert space.pool.slabs == 2
    for block in [b for b in store.index if not b.children][:4]:
        for member in block.chain()[::-1]:
            space.remove(member)
    store.budget = SLAB_BYTES
    assert (space.pool.slabs, len(space.blocks)) == (1, 16)
    store.budget = ROOMY
    found = [talk(store, tokens(1000 * n, 4 * BLOCK + 1)).matched for n in range(8)]
    assert sorted(found) == [0] * 4 + [4 * BLOCK] * 4


def test_forgetting_gives_the_memory_back() -> None:  # C18
    mx.clear_cache()
    before = mx.get_active_memory()
    store = store_of(512 * HOT)
    for n in range(20):
        talk(store, tokens(1000 * n, 3 * STEP), owner=f"s{n}")
    assert mx.get_active_memory() > before + 20 * HOT
    store.forget("model", "model")
    mx.clear_cache()
    assert mx.get_active_memory() <= before + 0.02 * 20 * HOT
    assert (store.nbytes, len(store.index)) == (0, 0)


def test_two_names_of_one_content_share_its_kv(store: PrefixCache) -> None:
    store.register("model", "copy", Model(), Layout(LAYERS))
    talk(store, tokens(0, 50))
    store.forget("model", "model")
    assert talk(store, tokens(0, 60)).matched == 50
    store.forget("model", "copy")
    assert store.spaces() == []


# --- anything in any order --------------------------------------------------------------------


def still_to_come(space: Space) -> int:
    """Slots that running sequences ask for until they are as long as was reserved."""
    if not isinstance(space, PagedSpace):
        return 0
    running = [live for live in space.lives if live.running and live.pages is not None]
    return sum(live.pages.missing(live.capacity) for live in running)


@pytest.mark.parametrize("paged", [False, True], ids=["contiguous", "paged"])
@pytest.mark.parametrize("seed", range(6))
def test_the_budget_is_held_whatever_happens(seed: int, paged: bool) -> None:  # C17
    """Prompts that share beginnings, several at a time, under budgets that are hardly enough."""
    draw = random.Random(seed)
    store = store_of(draw.randrange(4, 10) * HOT, paged=paged)
    store.register("other", "other", Model(), Layout(LAYERS), paged)
    stems = [[draw.randrange(100) for _ in range(draw.randrange(5, 400))] for _ in range(6)]
    running: list[object] = []
    waiting: list[object] = []
    served = 0
    for _ in range(400):
        act = draw.choice(["plan", "plan", "start", "start", "end", "end", "kill", "pin"])
        if act == "plan" and len(waiting) < 3:
            stem = draw.choice(stems)
            prompt = stem[: draw.randrange(1, len(stem) + 1)]
            prompt += [draw.randrange(100) for _ in range(draw.randrange(1, 40))]
            key = draw.choice(["model", "model", "other"])
            owner = draw.choice([None, "a", "b", "c"])
            promise = draw.random() < 0.8
            waiting.append((key, store.plan(key, "", pack(prompt), owner, promise)))
        elif act == "start" and waiting:
            key, plan = waiting.pop(0)
            promised = plan.matched
            try:
                live = begun(store, plan, key)
            except NoRoom:
                store.release(plan)
            else:
                assert plan.matched >= promised
                assert_sound(live)
                running.append(live)
                served += 1
        elif act == "end" and running:
            live = running.pop(draw.randrange(len(running)))
            store.retire(live, carve=draw.random() < 0.2)
        elif act == "kill" and running:
            store.drop(running.pop(draw.randrange(len(running))))
        elif act == "pin" and store.lives():
            store.hand.pin(draw.choice(store.lives()).id, pinned=draw.random() < 0.2)
        assert real_bytes(store) == store.nbytes <= store.budget
        for space in store.spaces():
            assert space.pool.free >= still_to_come(space)
        for live in store.lives():
            assert_sound(live)
    assert served > 40
    assert store.faults == 0
