"""Models that cannot be rewound: right, cold, and the frames say so."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxnb.sessions.local import LocalEngine

from .families import FORGETFUL, Family
from .settled import assert_settled, held
from .spy import Spy, assert_parity, watch
from .world import WORDS, World

FolderOf = Callable[[str], Path]
every_family = pytest.mark.parametrize("family", FORGETFUL, ids=lambda family: family.name)
WINDOW = 24


def watched(engine: LocalEngine, folder: Path) -> tuple[str, Spy]:
    name = engine.load(folder, progress=False).name
    return name, watch(engine, name)


@every_family
def test_whatever_is_done_with_them_they_run_cold_and_right(
    engine: LocalEngine, folder_of: FolderOf, random_chunks: random.Random, family: Family
) -> None:
    """C7, C8: forks, rewinds and cancels, alone and several at once."""
    random_chunks.seed(family.name)
    world = World(engine, folder_of(family.name), family.name, [2**26])
    for _ in range(20):
        world.step()
    for person in world.people[:3]:
        world.replay(person)
    assert not engine.turns().cached_tokens.any()
    assert engine.prefix_cache().empty


@every_family
def test_the_frame_says_that_they_cannot_be_rewound(
    engine: LocalEngine, folder_of: FolderOf, family: Family
) -> None:
    name = engine.load(folder_of(family.name), progress=False).name
    session = engine.session(name)
    for text in ("hello there", "and on", "and on"):
        assert session.send(text, max_tokens=3).cached_tokens == 0
    rows = engine.turns()
    assert rows.miss_reason.tolist()[1:] == ["not_rewindable"] * 2
    assert (rows.cache == "fresh").all()


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
    assert max(spy.rows) > 1, "nothing was batched"
    assert_parity(engine, spy, [engine.ledger[turn.id] for turn in turns])
    assert_settled(engine)


@pytest.mark.parametrize("length", [WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW])
@pytest.mark.parametrize("name", ["gemma3_text", "gpt_oss", "olmo3"])
def test_around_the_window(
    engine: LocalEngine, folder_of: FolderOf, name: str, length: int
) -> None:
    """C5: prompts that just fill a sliding window, alone and beside another."""
    model, spy = watched(engine, folder_of(name))
    empty = engine.session(model).send("", max_tokens=1).prompt_tokens
    spy.clear()
    text = "!" * (length - empty)
    turns = [engine.session(model).send(text, max_tokens=2 * WINDOW)]
    with held(engine):
        replies = [engine.session(model).reply(t, max_tokens=2 * WINDOW) for t in (text, "?")]
    turns += [reply.result() for reply in replies]
    assert turns[0].prompt_tokens == turns[1].prompt_tokens == length
    assert turns[0].tokens == turns[1].tokens
    assert_parity(engine, spy, [engine.ledger[turn.id] for turn in turns])
