"""Models that cannot be rewound: reuse begins at checkpoints, and warm is cold."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxnb.cache.room import SNAPSHOTS
from mlxnb.cache.store import MAX_HOT
from mlxnb.sessions.local import LocalEngine

from .bench import Bench
from .families import FORGETFUL, Family
from .settled import assert_settled, held
from .spy import Spy, assert_parity, watch
from .world import WORDS, World

FolderOf = Callable[[str], Path]
every_family = pytest.mark.parametrize("family", FORGETFUL, ids=lambda family: family.name)
WINDOW = 24
WINDOWED = [f.name for f in FORGETFUL if re.search("window|chunk", " ".join(f.config))]
SYSTEM = "You say what you see, in as few words as you can, and you never repeat yourself."
PLENTY = [2**26]
TIGHT = [150_000, 300_000, 1_200_000]


def watched(engine: LocalEngine, folder: Path) -> tuple[str, Spy]:
    name = engine.load(folder, progress=False).name
    return name, watch(engine, name)


@pytest.mark.parametrize("budgets", [PLENTY, TIGHT], ids=["plenty", "evicting"])
@every_family
def test_whatever_is_done_with_them_warm_is_cold(
    engine: LocalEngine,
    folder_of: FolderOf,
    random_chunks: random.Random,
    family: Family,
    budgets: list[int],
) -> None:
    """C3, C6 to C11, C13: forks, rewinds and cancels, alone and several at once."""
    random_chunks.seed(family.name)
    world = World(engine, folder_of(family.name), family.name, budgets)
    for _ in range(24):
        world.step()
    for person in world.people[:3]:
        world.replay(person)
    assert budgets is TIGHT or sum(engine.turns().cached_tokens) > 0


@every_family
def test_a_second_turn_goes_on_where_the_first_ended(
    engine: LocalEngine, folder_of: FolderOf, family: Family
) -> None:
    """C6, and by the independent witness."""
    bench = Bench(engine, folder_of(family.name))
    session = bench.session(system=SYSTEM)
    first = session.send("hello there", max_tokens=6)
    bench.fed(first)
    second = session.send("and on", max_tokens=6)
    assert second.cached_tokens == first.prompt_tokens + first.output_tokens - 1
    assert bench.fed(second) == second.prefill_tokens + second.output_tokens - 1


@every_family
def test_the_same_prompt_again_computes_one_token(
    engine: LocalEngine, folder_of: FolderOf, family: Family
) -> None:
    """C1: from a hot cache, and from what it left in blocks."""
    bench = Bench(engine, folder_of(family.name))
    turns = [bench.session(system=SYSTEM).send("hello there", max_tokens=6) for _ in range(2)]
    for number in range(MAX_HOT + 2):
        bench.engine.session(bench.name, cache_salt=str(number)).send("x", max_tokens=1)
    turns.append(bench.session(system=SYSTEM).send("hello there", max_tokens=6))
    assert [t.tokens for t in turns] == [turns[0].tokens] * 3
    assert [t.cached_tokens for t in turns[1:]] == [turns[0].prompt_tokens - 1] * 2


@every_family
def test_another_conversation_begins_after_the_head(
    engine: LocalEngine, folder_of: FolderOf, family: Family
) -> None:
    """C10: system text and what the template writes up to the first message."""
    bench = Bench(engine, folder_of(family.name))
    first = bench.session(system=SYSTEM).send("hello there", max_tokens=3)
    other = bench.session(system=SYSTEM).send("something else", max_tokens=3)
    spans = engine.ledger[first.id].spans
    head = next(span.start for span in spans if span.role == "user")
    assert other.cached_tokens == head > 16


@every_family
def test_a_fork_at_every_message_reaches_the_one_before(
    engine: LocalEngine, folder_of: FolderOf, family: Family
) -> None:
    bench = Bench(engine, folder_of(family.name))
    session = bench.session(system=SYSTEM)
    ends = []
    for text in ("hello there", "and on", "so what"):
        turn = session.send(text, max_tokens=4)
        ends.append(turn.prompt_tokens + turn.output_tokens - 1)
    for turns in (1, 2):
        fork = session.fork()
        fork.rewind(turns)
        bench.spy.clear()
        turn = fork.send("something else altogether", max_tokens=3)
        assert turn.cached_tokens - ends[-1 - turns] in (0, 1)
        assert_parity(engine, bench.spy, [engine.ledger[turn.id]], greedy=False)


@pytest.mark.usefixtures("slow_chunks")
@every_family
def test_what_was_computed_before_a_cancel_is_reused(
    engine: LocalEngine, folder_of: FolderOf, family: Family
) -> None:
    """C23: at every chunk of a prompt."""
    bench = Bench(engine, folder_of(family.name))
    for calls in range(1, 9):
        session = engine.session(bench.name, system=SYSTEM, cache_salt=str(calls))
        with held(engine):
            reply, begun = session.reply("hello there", max_tokens=3), bench.spy.calls
            bench.spy.on_call = lambda n: reply.cancel() if n >= begun + calls else None  # noqa: B023
        cancelled = reply.outcome()
        bench.spy.on_call = lambda n: None
        rows = [engine.ledger[cancelled.id]]
        shares = assert_parity(engine, bench.spy, rows)
        done = len(shares[cancelled.id])
        again = session.send("hello there", max_tokens=3)
        if not cancelled.tokens and not bench.spy.blind:
            assert again.cached_tokens == done
        assert_parity(engine, bench.spy, [engine.ledger[again.id]])


@every_family
def test_checkpoints_are_rows_of_the_frame_and_keep_to_their_budget(
    engine: LocalEngine, folder_of: FolderOf, family: Family
) -> None:
    bench = Bench(engine, folder_of(family.name))
    engine.core.budget = 400_000
    session = bench.session(system=SYSTEM)
    for number in range(12):
        session.send(f"and on {number}", max_tokens=3)
        snapshots = engine.core.store.room.snapshots
        assert snapshots.nbytes <= engine.budget // SNAPSHOTS
    kinds = set(engine.prefix_cache().kind)
    if engine.core.runtime(bench.name).reuse == "checkpoint":
        assert kinds & {"window", "state"}
    assert_settled(engine)


@every_family
def test_the_frame_says_what_cannot_be_rewound(
    engine: LocalEngine, folder_of: FolderOf, family: Family
) -> None:
    bench = Bench(engine, folder_of(family.name))
    text = " ".join(["hello there"] * 10)
    bench.session().send(text, max_tokens=3)
    turn = bench.session().send(f"{text[:-20]} and on", max_tokens=3)
    row = engine.turns().set_index("turn_id").loc[turn.id]
    if engine.core.runtime(bench.name).reuse == "checkpoint":
        assert row.miss_reason == "not_rewindable" and row.cached_tokens < 30


@every_family
def test_a_ragged_batch_of_them_answers_as_each_alone(
    engine: LocalEngine, folder_of: FolderOf, family: Family
) -> None:
    """C12."""
    name, spy = watched(engine, folder_of(family.name))
    texts = [" ".join(WORDS[: 1 + number] * (1 + number)) for number in range(5)]
    with held(engine):
        replies = [engine.session(name).reply(text, max_tokens=16) for text in texts]
    turns = [reply.result() for reply in replies]
    assert max(spy.rows) > 1 or not engine.core.runtime(name).batchable, "nothing was batched"
    assert_parity(engine, spy, [engine.ledger[turn.id] for turn in turns])
    assert_settled(engine)


@pytest.mark.parametrize("length", [WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW])
@pytest.mark.parametrize("name", WINDOWED)
def test_around_the_window(
    engine: LocalEngine, folder_of: FolderOf, name: str, length: int
) -> None:
    """C5: prompts that just fill a window; alone, again, beside another, and gone on with."""
    model, spy = watched(engine, folder_of(name))
    empty = engine.session(model).send("", max_tokens=1).prompt_tokens
    spy.clear()
    text = "!" * (length - empty)
    session = engine.session(model)
    turns = [session.send(text, max_tokens=2 * WINDOW)]
    turns.append(engine.session(model).send(text, max_tokens=2 * WINDOW))
    with held(engine):
        others = [
            engine.session(model, cache_salt="other").reply(t, max_tokens=9) for t in (text, "?")
        ]
    turns += [reply.result() for reply in others]
    turns.append(session.send(text, max_tokens=2 * WINDOW))
    assert [turn.prompt_tokens for turn in turns[:3]] == [length] * 3
    assert turns[0].tokens == turns[1].tokens
    assert turns[1].cached_tokens == length - 1 and turns[4].cached_tokens >= length - 1
    assert_parity(engine, spy, [engine.ledger[turn.id] for turn in turns])
