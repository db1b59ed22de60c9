"""Checkpoints: what they hold, how much of them there is, which go and which stay."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from parity.bench import NEVER
from parity.families import FORGETFUL, Family
from parity.settled import assert_settled
from parity.spy import assert_parity, watch

from mlxnb import mlxlm
from mlxnb.cache.checkpoint import Checkpoint, Stretch
from mlxnb.cache.index import Block
from mlxnb.cache.layout import LONGEST_STRIDE, STRIDE, Layout
from mlxnb.cache.pool import BLOCK
from mlxnb.cache.room import SNAPSHOTS, NoRoom
from mlxnb.cache.snapshots import Snapshots
from mlxnb.cache.store import MAX_HOT, PrefixCache
from mlxnb.mlxlm import LayerShape
from mlxnb.records.tokens import pack, unpack
from mlxnb.sessions.local import LocalEngine

from .forgetful import KINDS, add_model, assert_sound, begun, planned, store_of, talk

MIB = 2**20
ROOMY = 16 * MIB
every_kind = pytest.mark.parametrize("kind", KINDS)


def tokens(start: int, length: int) -> list[int]:
    return list(range(start, start + length))


def there(store: PrefixCache, prompt: list[int], key: str = "model") -> int:
    """What a plan would reuse; it keeps nothing."""
    plan = planned(store, prompt, key=key)
    store.release(plan)
    return plan.matched


def checkpoints(store: PrefixCache) -> list[Checkpoint]:
    """The least recently used first."""
    return sorted(store.room.snapshots, key=lambda checkpoint: checkpoint.stamp)


def positions(store: PrefixCache) -> list[int]:
    return sorted(checkpoint.position for checkpoint in store.room.snapshots)


def assert_adds_up(store: PrefixCache) -> None:
    """The book of checkpoints is right, and each is where it can be found."""
    snapshots = store.room.snapshots
    stretches = {stretch for checkpoint in snapshots for stretch in checkpoint.stretches}
    states = sum(checkpoint.states.nbytes for checkpoint in snapshots)
    assert snapshots.nbytes == states + sum(stretch.nbytes for stretch in stretches)
    for checkpoint in snapshots:
        assert (checkpoint.live is None) != (checkpoint.node is None)
        if checkpoint.live is not None:
            assert checkpoint in checkpoint.live.checkpoints
            assert checkpoint.position <= checkpoint.live.length
        else:
            node = checkpoint.node
            assert node is not None and not node.dropped
            assert node.marks[checkpoint.key] is checkpoint
            assert checkpoint.position == node.end + len(unpack(checkpoint.key))
    for space in store.spaces():
        for live in space.lives:
            assert all(checkpoint in set(snapshots) for checkpoint in live.checkpoints)
        if not space.pool.slab_bytes:
            for block in space.blocks.values():
                assert block.children or block.refs or block.pinned or leads_somewhere(block)


def leads_somewhere(leaf: Block) -> bool:
    """Whether a checkpoint lies at its end or in the midst of it."""
    assert leaf.parent is not None
    return bool(leaf.marks) or any(key and leaf.tokens.startswith(key) for key in leaf.parent.marks)


# --- what a prompt finds ----------------------------------------------------------------------


@every_kind
def test_a_prompt_goes_on_from_the_deepest_checkpoint(kind: str) -> None:
    store = store_of(ROOMY, kind)
    talk(store, tokens(0, 100), "a", marks=(20, 50, 80))
    assert positions(store) == [20, 50, 80, 99]
    for length, found in ((19, 0), (20, 20), (49, 20), (79, 50), (98, 80), (99, 99)):
        assert there(store, [*tokens(0, length), 500, 501]) == found
    assert there(store, tokens(0, 101)) == 100  # the hot cache itself
    assert_adds_up(store)


@every_kind
def test_what_it_begins_with_is_what_was_there(kind: str) -> None:
    """At each of many positions; windows shorter and longer than what came before."""
    store = store_of(ROOMY, kind)
    marks = (1, 5, 15, 16, 17, 23, 24, 25, 47, 48, 49, 64, 90)
    talk(store, tokens(0, 100), "a", marks=marks)
    for number, mark in enumerate(marks):
        plan = talk(store, [*tokens(0, mark), *tokens(500 + 50 * number, 40)], f"b{number}")
        assert plan.matched == mark
    assert_adds_up(store)


@every_kind
def test_filed_checkpoints_are_found_as_live_ones_are(kind: str) -> None:
    store = store_of(ROOMY, kind)
    talk(store, tokens(0, 100), "a", marks=(20, 50))
    for number in range(MAX_HOT + 2):
        talk(store, tokens(1000 * number + 1000, 30), f"s{number}")
    assert not any(live.owner == "a" for live in store.lives())
    for length, found in ((19, 0), (20, 20), (49, 20), (98, 50), (100, 100)):
        assert there(store, [*tokens(0, length), 500, 501]) == found
    assert talk(store, [*tokens(0, 100), 7], "b").matched == 100
    assert_adds_up(store)


@every_kind
def test_filing_never_makes_a_longer_prefix_unreachable(kind: str) -> None:
    """C4: whatever is filed later, and in whatever order."""
    draw = random.Random(kind)
    store = store_of(ROOMY, kind)
    line = [draw.randrange(100) for _ in range(200)]
    reached: dict[int, int] = {}
    for number in range(60):
        length = draw.randrange(1, 200)
        astray = [100 + draw.randrange(5) for _ in range(draw.choice((0, 0, 1, 20)))]
        marks = tuple(sorted(draw.sample(range(1, 200), 3)))
        live = begun(store, planned(store, [*line[:length], *astray], f"s{number}", marks))
        store.retire(live, carve=draw.random() < 0.5)
        for end in range(1, 201, 7):
            now = there(store, [*line[:end], 999])
            assert now >= reached.get(end, 0), f"{end}: {now} after {reached[end]}"
            reached[end] = now
    assert_adds_up(store)


@every_kind
def test_a_conversation_that_goes_on_is_continued_without_a_copy(kind: str) -> None:
    store = store_of(ROOMY, kind)
    talk(store, tokens(0, 50), "a")
    plan = talk(store, tokens(0, 80), "a")
    assert (plan.matched, plan.takeover, plan.own) == (50, True, True)
    assert store.copied_bytes == 0
    assert talk(store, [*tokens(0, 50), 500, 501], "b").matched == 50  # where the other went on


# --- how much of them there is ----------------------------------------------------------------


@every_kind
def test_they_take_a_third_of_the_budget_at_most(kind: str) -> None:
    store = store_of(900_000, kind)
    for number in range(60):
        live = begun(store, planned(store, tokens(1000 * number, 150), f"s{number}", (30, 60, 90)))
        assert store.room.snapshots.nbytes <= store.budget // SNAPSHOTS
        store.retire(live, carve=number % 3 == 0)
        assert store.nbytes <= store.budget
        assert_adds_up(store)
    assert len(store.room.snapshots) >= 10


@every_kind
def test_a_lower_budget_is_held_by_them_too(kind: str) -> None:
    store = store_of(ROOMY, kind)
    for number in range(20):
        talk(store, tokens(1000 * number, 150), f"s{number}", marks=(30, 60, 90))
    for budget in (900_000, 300_000, 20_000):
        store.budget = budget
        assert store.room.snapshots.nbytes <= budget // SNAPSHOTS
        assert store.nbytes <= budget
        assert_adds_up(store)


def test_neighbours_share_what_their_windows_have_in_common() -> None:
    store = store_of(ROOMY, "windows")
    talk(store, tokens(0, 60), "a", marks=(40, 44, 48))
    taken = {checkpoint.position: checkpoint for checkpoint in checkpoints(store)}
    first, second = taken[40].stretches, taken[44].stretches
    assert [(s.start, s.end) for s in second] == [(16, 40), (40, 44)]
    assert second[0] is first[0]
    token = first[0].nbytes // 24
    assert store.room.snapshots.nbytes == (24 + 4 + 4 + 11) * token
    assert taken[48].start == 16
    store.room.snapshots.drop(taken[40])
    assert_adds_up(store)


def test_a_checkpoint_that_is_not_kept_shares_nothing_any_more() -> None:
    store = store_of(ROOMY, "windows")
    live = begun(store, planned(store, tokens(0, 41), "a", marks=(40,)))
    store.room.snapshots.drop(live.checkpoints[0])
    store.retire(live)
    live = begun(store, planned(store, tokens(0, 60), "a"))
    assert_sound(live)
    assert_adds_up(store)


def test_what_it_shared_with_one_that_goes_for_it_is_its_own() -> None:
    store = store_of(ROOMY, "windows")
    snapshots = store.room.snapshots
    for number in range(8):
        live = begun(store, planned(store, tokens(1000 * number, 30), f"s{number}"))
        store.retire(live, carve=True)
    for checkpoint in snapshots:
        store.hand.pin(checkpoint.id)
    live = begun(store, planned(store, tokens(0, 42), "a"))
    store.budget = SNAPSHOTS * snapshots.nbytes
    assert [checkpoint.position for checkpoint in live.checkpoints] == [41]
    assert snapshots.growth(store.space("model").checkpoint(live)) < snapshots.nbytes // 20
    store.room.checkpoint(live)
    assert snapshots.nbytes <= store.budget // SNAPSHOTS
    assert_adds_up(store)


def test_snapshots_count_what_is_shared_once() -> None:
    def stretch(start: int, end: int) -> Stretch:
        zeros = mx.zeros((1, 1, end - start, 1))
        return Stretch(start, end, [mlxlm.Part((0,), zeros, zeros)])

    def checkpoint(position: int, *stretches: Stretch) -> Checkpoint:
        return Checkpoint("m", position, mlxlm.States([], []), stretches)

    book = Snapshots(count(1))
    parts = [stretch(0, 10), stretch(10, 14), stretch(14, 20)]
    first, second = checkpoint(10, parts[0]), checkpoint(14, parts[0], parts[1])
    third = checkpoint(20, parts[1], parts[2])
    book.add(first, 0.0)
    assert (book.nbytes, book.growth(second)) == (80, 32)
    book.add(second, 0.0)
    book.add(third, 0.0)
    assert book.nbytes == 160
    assert [book.bytes_of(c) for c in (first, second, third)] == [0, 0, 48]
    assert [book.share_of(c) for c in (first, second, third)] == [40, 56, 64]
    second.refs = 1
    assert (book.oldest(), book.evictable()) == (first, 48)
    book.drop(first)
    book.drop(first)
    assert (book.nbytes, book.bytes_of(second), len(book)) == (160, 80, 2)
    book.drop(third)
    assert (book.oldest(), book.evictable(), book.nbytes) == (None, 0, 112)


@pytest.mark.parametrize(
    ("state", "token", "stride"),
    [
        (0, 100, STRIDE),
        (STRIDE * 100, 100, STRIDE),
        (STRIDE * 100 + 1, 100, 2 * STRIDE),
        (2**40, 100, LONGEST_STRIDE),
        (2**20, 0, LONGEST_STRIDE),
    ],
)
def test_between_messages_they_are_as_far_apart_as_they_are_large(
    state: int, token: int, stride: int
) -> None:
    planes = [LayerShape(1, token // 8, token // 8, mx.float32)] if token else []
    planes += [LayerShape(1, token % 8 // 4, 0, mx.float32)] if token % 8 else []
    layout = Layout(planes, anchored=True, state_bytes=state)
    assert layout.stride == stride
    marks = layout.marks((5, 70, 10**6), 10, 2 * stride + 50)
    assert marks == (70, stride, 2 * stride, 2 * stride + 50)


# --- which go ---------------------------------------------------------------------------------


@pytest.fixture
def store() -> PrefixCache:
    """Room for twelve states, and KV beside them."""
    store = store_of(ROOMY, "states")
    store.budget = SNAPSHOTS * 12 * store.space("model").layout.state_bytes  # type: ignore[union-attr]
    return store


def test_the_least_recently_used_goes_first(store: PrefixCache) -> None:
    for number in range(6):
        talk(store, tokens(1000 * number, 40), f"s{number}", marks=(20,))
    assert len(checkpoints(store)) == 12
    first = store.lives()[0].checkpoints[0]
    store.room.snapshots.touch(first, 0.0)
    talk(store, tokens(9000, 40), "new", marks=(20,))
    assert first in checkpoints(store)
    assert [live.owner for live in store.lives() if len(live.checkpoints) < 2] == ["s0", "s1"]


def test_using_one_makes_it_young(store: PrefixCache) -> None:
    talk(store, tokens(0, 40), "a", marks=(20,))
    store.retire(begun(store, planned(store, tokens(500, 40), "b", marks=(20,))), carve=True)
    assert talk(store, [*tokens(500, 20), *tokens(600, 5)], "c").matched == 20
    for number in range(1, 5):
        talk(store, tokens(1000 * number, 40), f"s{number}", marks=(20,))
    assert there(store, [*tokens(500, 20), 1, 2]) == 20
    assert there(store, [*tokens(0, 20), 1, 2]) == 0


@pytest.mark.parametrize("keep", ["pinned", "planned", "its live cache is planned"])
def test_what_is_pinned_or_relied_on_stays(store: PrefixCache, keep: str) -> None:
    live = begun(store, planned(store, tokens(0, 40), "a", marks=(20,)))
    store.retire(live, carve=keep == "planned")
    kept = next(c for c in checkpoints(store) if c.position == 20)
    plan = None
    if keep == "pinned":
        store.hand.pin(kept.id)
    else:
        plan = planned(store, [*tokens(0, 20), *tokens(700, 20)], "b")
        assert (plan.match.checkpoint is kept) == (keep == "planned")
    for number in range(1, 40):
        talk(store, tokens(1000 * number, 40), f"s{number}", marks=(20,))
    assert kept in checkpoints(store)
    if plan is not None:
        assert begun(store, plan).length == 40
        assert plan.matched == 20
    else:
        store.hand.pin(kept.id, pinned=False)
    for number in range(41, 80):
        talk(store, tokens(1000 * number, 40), f"s{number}", marks=(20,))
    assert kept not in checkpoints(store)
    assert_adds_up(store)


def test_a_hot_cache_whose_checkpoint_is_pinned_stays(store: PrefixCache) -> None:
    talk(store, tokens(0, 40), "a", marks=(20,))
    store.hand.pin(next(c.id for c in checkpoints(store) if c.position == 20))
    store.budget = 100_000
    for number in range(1, 20):
        talk(store, tokens(1000 * number, 40), f"s{number}", marks=(20,))
    assert store.nbytes <= store.budget
    assert there(store, [*tokens(0, 20), 1, 2]) == 20


def test_a_hot_cache_does_not_make_room_for_its_own_checkpoint(store: PrefixCache) -> None:
    """As it is cut into blocks, where hardly anything else could go."""
    live = begun(store, planned(store, tokens(0, 40), "a"))
    size = store.room.snapshots.nbytes
    store.budget = SNAPSHOTS * size + 100
    assert live.reserved < store.budget < live.reserved + size
    store.retire(live, carve=True)
    assert store.nbytes <= store.budget
    assert_adds_up(store)


def test_where_all_are_pinned_no_other_is_taken(store: PrefixCache) -> None:
    for number in range(6):
        talk(store, tokens(1000 * number, 40), f"s{number}", marks=(20,))
    for checkpoint in checkpoints(store):
        store.hand.pin(checkpoint.id)
    live = begun(store, planned(store, tokens(9000, 40), "new", marks=(20,)))
    assert live.checkpoints == []
    assert not store.room.checkpoint(live)
    store.retire(live)
    assert len(checkpoints(store)) == 12
    assert talk(store, tokens(9000, 50), "new").matched == 40  # in place, without one
    assert_adds_up(store)


@pytest.mark.parametrize("kind", ["windows", "states", "both"])
def test_a_checkpoint_goes_with_the_keys_before_it(kind: str) -> None:
    store = store_of(ROOMY, kind)
    live = begun(store, planned(store, tokens(0, 90), "a", marks=(20, 32, 50, 64)))
    store.retire(live, carve=True)
    assert positions(store) == [20, 32, 50, 64, 89, 90]
    left = {80: [20, 32, 50, 64], 64: [20, 32, 50, 64], 48: [20, 32], 32: [20, 32], 16: [], 0: []}
    for leaf in sorted(store.index, key=lambda block: -block.start):
        store.space("model").remove(leaf)
        assert positions(store) == left[leaf.start]
        assert_adds_up(store)


@pytest.mark.parametrize("kind", ["windows", "states", "both"])
def test_one_in_the_midst_of_a_block_stays_while_any_block_has_its_keys(kind: str) -> None:
    store = store_of(ROOMY, kind)
    for number in range(2):
        prompt = [*tokens(0, 20), *tokens(500 + 100 * number, 12)]
        live = begun(store, planned(store, prompt, f"s{number}", marks=(20,)))
        store.retire(live, carve=True)
    leaves = [block for block in store.index if block.start == 16]
    assert len(leaves) == 2
    assert positions(store).count(20) == 1
    store.space("model").remove(leaves[0])
    assert there(store, [*tokens(0, 20), 1, 2]) == 20
    store.space("model").remove(leaves[1])
    assert positions(store) == []
    assert there(store, [*tokens(0, 20), 1, 2]) == 0


def test_without_keys_blocks_go_with_their_checkpoints() -> None:
    """C17: there is a block for each way to a checkpoint, and none besides."""
    store = store_of(ROOMY, "states alone")
    space = store.space("model")
    assert space.layout is not None
    store.budget = SNAPSHOTS * 12 * space.layout.state_bytes
    most = 0
    for number in range(200):
        live = begun(store, planned(store, tokens(1000 * number, 100), f"s{number}", (40, 70)))
        store.retire(live, carve=number % 2 == 0)
        assert_adds_up(store)
        most = max(most, len(store.index))
    assert most <= 12 * 7
    for checkpoint in checkpoints(store):
        space.forget(checkpoint)
    assert (len(store.index), space.pool.free) == (0, 16 * space.pool.slabs)


def test_without_keys_what_leads_further_stays() -> None:
    store = store_of(ROOMY, "states alone")
    live = begun(store, planned(store, tokens(0, 100), "a", marks=(20, 70)))
    store.retire(live, carve=True)
    space = store.space("model")
    by_position = {checkpoint.position: checkpoint for checkpoint in checkpoints(store)}
    assert sorted(by_position) == [20, 70, 99, 100]
    space.forget(by_position[20])
    assert there(store, [*tokens(0, 70), 1, 2]) == 70
    space.forget(by_position[100])
    space.forget(by_position[99])
    assert max(block.end for block in store.index) < 100
    assert there(store, [*tokens(0, 70), 1, 2]) == 70
    assert_adds_up(store)


def test_a_model_that_goes_takes_its_checkpoints_along() -> None:  # C18
    store = store_of(ROOMY, "both")
    add_model(store, "states alone", "other")
    talk(store, tokens(0, 50), "a", marks=(20,))
    store.retire(begun(store, planned(store, tokens(0, 50), "a", (20,), "other"), "other"), True)
    store.forget("other", "other")
    assert {checkpoint.space for checkpoint in checkpoints(store)} == {"model"}
    store.forget("model", "model")
    assert (store.nbytes, len(store.room.snapshots), len(store.index)) == (0, 0, 0)


# --- anything in any order --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_budgets_are_held_whatever_happens(seed: int, kind: str) -> None:
    """Prompts that share beginnings, several at a time, two models, and little room."""
    draw = random.Random(f"{seed} {kind}")
    budgets = (250_000, 400_000, 900_000)
    store = store_of(draw.choice(budgets), kind)
    add_model(store, draw.choice(list(KINDS)), "other")
    stems = [[draw.randrange(100) for _ in range(draw.randrange(60, 300))] for _ in range(3)]
    running: list[Any] = []
    waiting: list[Any] = []
    served, reused, held = 0, 0, 0
    for _ in range(500):
        act = draw.choice(["plan", "plan", "start", "start", "end", "end", "kill", "pin", "budget"])
        if act == "plan" and len(waiting) < 3:
            stem = draw.choice(stems)
            prompt = stem[: draw.randrange(1, len(stem) + 1)]
            prompt += [draw.randrange(100) for _ in range(draw.randrange(1, 40))]
            marks = tuple(draw.sample(range(10, 300, 10), 4))
            key, owner = draw.choice(["model", "model", "other"]), draw.choice([None, "a", "b"])
            promise = draw.random() < 0.8
            plan = store.plan(key, "", pack(prompt), owner, promise, marks)
            waiting.append((key, plan))
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
                served, reused = served + 1, reused + bool(plan.matched)
        elif act == "end" and running:
            live = running.pop(draw.randrange(len(running)))
            store.retire(live, carve=draw.random() < 0.3)
        elif act == "kill" and running:
            store.drop(running.pop(draw.randrange(len(running))))
        elif act == "pin" and checkpoints(store):
            store.hand.pin(draw.choice(checkpoints(store)).id, pinned=draw.random() < 0.3)
        elif act == "budget":
            store.budget = draw.choice(budgets)
        most = held if act in ("start", "pin") else in_use(store)
        held = store.room.snapshots.nbytes
        if act in ("start", "pin", "budget", "end"):
            assert held <= max(store.budget // SNAPSHOTS, most)
        assert_adds_up(store)
        for live in store.lives():
            assert_sound(live)
    assert served > 40 and reused > 8
    assert store.faults == 0


def in_use(store: PrefixCache) -> int:
    """Bytes of the checkpoints that somebody relies on."""
    used = [checkpoint for checkpoint in store.room.snapshots if checkpoint.used]
    stretches = {stretch for checkpoint in used for stretch in checkpoint.stretches}
    return sum(c.states.nbytes for c in used) + sum(stretch.nbytes for stretch in stretches)


# --- arrays -----------------------------------------------------------------------------------


def arrays() -> int:
    """Arrays of MLX that Python knows of."""
    gc.collect()
    return sum(isinstance(thing, mx.array) for thing in gc.get_objects())


DEEP: dict[str, Callable[[int], dict[str, Any]]] = {
    "gemma3_text": lambda layers: {"num_hidden_layers": layers},
    "mamba2": lambda layers: {"num_hidden_layers": layers},
    "qwen3_next": lambda layers: {"num_hidden_layers": layers},
    "lfm2": lambda layers: {
        "num_hidden_layers": layers,
        "layer_types": ["conv", "full_attention"] * (layers // 2),
    },
}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    engine = LocalEngine(budget=64 * MIB)
    yield engine
    engine.close()


@pytest.mark.parametrize("name", DEEP)
def test_the_number_of_arrays_does_not_grow_with_tokens_times_layers(
    engine: LocalEngine, tmp_path: Path, name: str
) -> None:
    """C19: two slabs, and for each checkpoint a few arrays however many layers there are."""
    family = next(family for family in FORGETFUL if family.name == name)
    grown: dict[int, float] = {}
    for layers in (2, 8):
        folder = Family(name, family.config | DEEP[name](layers), plain=family.plain)
        model = engine.load(folder.save(tmp_path / str(layers)), progress=False).name
        seen = []
        for number in range(24):
            text = " ".join(["lazy dogs", str(number), "the quick brown fox"] * 6)
            engine.session(model, cache_salt=f"{number}").send(text, max_tokens=1)
            if number in (11, 23):
                kept = len(engine.core.store.room.snapshots)
                seen.append((engine.core.owner.call(arrays), kept))
        (first, few), (second, many) = seen
        assert many > few
        grown[layers] = (second - first) / (many - few)
        engine.unload(model)
    assert grown[8] <= grown[2] + 1
    assert grown[8] < 8


# --- two models in turn -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [("gemma3_text", "mamba2"), ("qwen3_next", "lfm2"), ("mamba2", "rwkv7")], ids="-".join
)
def test_two_models_in_turn(engine: LocalEngine, tmp_path: Path, names: tuple[str, str]) -> None:
    """C14: each of their answers is a cold run's, and each goes on from what it has left."""
    families = {family.name: family for family in FORGETFUL}
    models = [engine.load(families[n].save(tmp_path / n), progress=False).name for n in names]
    spies = [watch(engine, model) for model in models]
    system = "You say what you see."
    sessions = [engine.session(m, system=system, logit_bias=NEVER) for m in models]
    for text in ("hello there", "and on", "so what", "and then"):
        for session, spy in zip(sessions, spies, strict=True):
            before = session.last
            turn = session.send(text, max_tokens=12)
            assert_parity(engine, spy, [engine.ledger[turn.id]], greedy=False)
            if before is not None:
                assert turn.cached_tokens == before.prompt_tokens + before.output_tokens - 1
    assert_settled(engine)


def test_whole_blocks_lie_before_a_checkpoint() -> None:
    store = store_of(ROOMY, "both")
    store.retire(begun(store, planned(store, tokens(0, 3 * BLOCK + 5), "a")), carve=True)
    nodes = {c.position: c.node for c in checkpoints(store) if c.node is not None}
    assert {position: node.end for position, node in nodes.items()} == {
        3 * BLOCK + 4: 3 * BLOCK,
        3 * BLOCK + 5: 3 * BLOCK,
    }
