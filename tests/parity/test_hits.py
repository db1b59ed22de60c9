"""Exact hits, prefixes that stay within reach, and a cache that says when it is full."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from mlxnb.errors import BudgetExceeded, RequestFailed
from mlxnb.sessions.local import LocalEngine

from .families import REWINDABLE, Family
from .settled import assert_settled, held
from .spy import assert_parity, watch
from .world import WORDS

FolderOf = Callable[[str], Path]
SYSTEM = "You say what you see, in as few words as you can, and you never repeat yourself."


def words(count: int, seed: int = 0) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


@pytest.mark.parametrize("family", REWINDABLE, ids=lambda family: family.name)
def test_the_same_prompt_twice_gives_the_same_answer(
    engine: LocalEngine, folder_of: FolderOf, family: Family
) -> None:
    """C1: all of it is cached but one token, which is always computed; C2: offsets fit."""
    name = engine.load(folder_of(family.name), progress=False).name
    spy = watch(engine, name)
    first = engine.session(name).send("say it", max_tokens=8)
    second = engine.session(name).send("say it", max_tokens=8)
    assert second.tokens == first.tokens
    assert second.cached_tokens == second.prompt_tokens - 1
    assert_parity(engine, spy, [engine.ledger[turn.id] for turn in (first, second)])
    assert_settled(engine)


@pytest.mark.parametrize("length", [1, 14, 15, 16, 17, 31, 32, 33])
def test_a_prompt_of_whole_blocks_twice(
    engine: LocalEngine, folder_of: FolderOf, length: int
) -> None:
    """C1 and C2 at the borders of blocks, from blocks and not from a hot cache."""
    name = engine.load(folder_of("llama"), progress=False).name
    spy = watch(engine, name)
    text = words(length, seed=length)
    first = engine.session(name).send(text, max_tokens=2)
    for number in range(10):  # more hot caches than are kept
        engine.session(name, cache_salt=str(number)).send("x", max_tokens=1)
    assert "kv" in set(engine.prefix_cache().kind)
    spy.clear()
    second = engine.session(name).send(text, max_tokens=2)
    assert second.cached_tokens == second.prompt_tokens - 1
    assert second.tokens == first.tokens
    assert_parity(engine, spy, [engine.ledger[second.id]])


@pytest.mark.parametrize("other", ["shorter", "longer", "astray", "tiny"])
def test_what_is_filed_later_leaves_a_longer_prefix_in_reach(
    engine: LocalEngine, folder_of: FolderOf, other: str
) -> None:
    """C4."""
    name = engine.load(folder_of("llama"), progress=False).name
    text = words(60)
    long = engine.session(name, system=SYSTEM).send(text, max_tokens=2)
    said = {
        "shorter": text[:80],
        "longer": f"{text} and on",
        "astray": text[:90] + "!",
        "tiny": ".",
    }
    for _ in range(3):
        engine.session(name, system=SYSTEM).send(said[other], max_tokens=2)
        engine.warm(SYSTEM, model=name)
        again = engine.session(name, system=SYSTEM).send(text, max_tokens=2)
        assert again.cached_tokens == again.prompt_tokens - 1
        assert again.tokens == long.tokens


def test_a_salt_separates(engine: LocalEngine, folder_of: FolderOf) -> None:
    name = engine.load(folder_of("llama"), progress=False).name
    for salt in ("", "a", "b"):
        turn = engine.session(name, system=SYSTEM, cache_salt=salt).send("say it", max_tokens=2)
        assert turn.cached_tokens == 0
    turn = engine.session(name, system=SYSTEM, cache_salt="a").send("say it", max_tokens=2)
    assert turn.cached_tokens == turn.prompt_tokens - 1


def test_a_request_larger_than_the_budget_is_refused_and_the_next_is_served(
    engine: LocalEngine, folder_of: FolderOf
) -> None:
    """C17."""
    name = engine.load(folder_of("llama"), progress=False).name
    engine.budget = 2**20
    session = engine.session(name)
    session.send("a small one", max_tokens=2)
    before = session.history
    with pytest.raises(RequestFailed, match="budget") as refused:
        session.send(words(1200), max_tokens=2)
    assert isinstance(refused.value.__cause__, BudgetExceeded)
    assert session.history == before
    assert session.send("another small one", max_tokens=2).output_tokens == 2
    assert_settled(engine)


def test_an_answer_that_outgrows_the_budget_ends_in_an_error_that_says_so(
    engine: LocalEngine, folder_of: FolderOf
) -> None:
    name = engine.load(folder_of("llama"), progress=False).name
    engine.core.budget = 256 * 400  # a contiguous cache of 256 tokens, and no more
    never = {token: -1000.0 for token in range(2, 3)} | {t: -1000.0 for t in range(300, 316)}
    reply = engine.session(name, logit_bias=never).reply("say it", max_tokens=600)
    turn = reply.outcome()
    assert turn.finish_reason == "error" and "raise engine().budget" in str(turn.error)
    assert 0 < turn.output_tokens < 600
    assert engine.session(name).send("say it", max_tokens=2).output_tokens
    assert_settled(engine)


def test_requests_that_fit_one_by_one_are_all_served_within_the_budget(
    engine: LocalEngine, folder_of: FolderOf
) -> None:
    """They wait for each other, whatever was promised to those in the queue."""
    name = engine.load(folder_of("llama"), progress=False).name
    engine.core.budget = 512 * 384 * 2
    start = engine.session(name, system=SYSTEM)
    start.send(words(20), max_tokens=2)
    with held(engine):
        people = [start.fork() for _ in range(6)]
        replies = [p.reply(words(40 + n, seed=n), max_tokens=4) for n, p in enumerate(people)]
    turns = [reply.outcome() for reply in replies]
    assert [turn.error for turn in turns] == [None] * 6
    assert_settled(engine)


# --- arrays -----------------------------------------------------------------------------------


def arrays() -> int:
    """Arrays of MLX that Python knows of."""
    gc.collect()
    return sum(isinstance(thing, mx.array) for thing in gc.get_objects())


@pytest.mark.parametrize("layers", [2, 8])
def test_the_number_of_arrays_does_not_grow_with_tokens_times_layers(
    engine: LocalEngine, tmp_path: Path, layers: int
) -> None:
    """C19: once the hot caches are many, only slabs are added: two arrays each for all layers."""
    folder = Family("llama", {"num_hidden_layers": layers}).save(tmp_path / "model")
    name = engine.load(folder, progress=False).name
    counts, tokens = [], []
    for number in range(24):
        engine.session(name).send(words(60, seed=number), max_tokens=1)
        if number in (11, 23):
            counts.append(engine.core.owner.call(arrays))
            tokens.append(int(engine.prefix_cache().tokens.sum()))
    grown, cached = counts[1] - counts[0], tokens[1] - tokens[0]
    assert cached > 12 * 100
    assert grown <= 2 * (cached // 256 + 2)
