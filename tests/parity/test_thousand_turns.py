"""A long day: 1,000 turns over 50 conversations that do not fit the cache together."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mlxnb import mlxlm
from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.session import Session

from .families import Family
from .settled import assert_settled, held
from .spy import Spy, assert_same_tokens, cold, watch
from .world import WORDS

MIB = 2**20
BUDGET = 64 * MIB
TURNS, CONVERSATIONS = 1000, 50
CHECKED = 120
LONGEST = 240
ROOMY = Family("llama", {"num_hidden_layers": 4, "head_dim": 64, "num_key_value_heads": 4})
"""8 KiB a token, though it computes little: a conversation takes 1 to 2 MiB."""


@dataclass
class Day:
    """What was seen, in bytes: ``memory`` after each turn, ``held`` and ``most`` in any step.

    ``held`` is what the cache says it holds, ``really_held`` what its arrays are, ``most`` what
    MLX has beyond the weights, free buffers included.
    """

    turns: list[Turn] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    held: int = 0
    really_held: int = 0
    most: int = 0
    weights: int = 0
    cold: int = 0


def really_held(engine: LocalEngine) -> int:
    """Bytes of the arrays themselves."""
    store = engine.core.store
    own = (live.caches for live in store.lives() if live.caches is not None and not live.pages)
    return sum(map(mlxlm.nbytes, own)) + sum(space.pool.nbytes for space in store.spaces())


def memory() -> int:
    """Bytes that MLX holds, in use and free."""
    return int(mx.get_active_memory() + mx.get_cache_memory())


def say(engine: LocalEngine, sessions: list[Session], chance: random.Random) -> list[Turn]:
    """One turn, or now and then several at once; long conversations begin anew."""
    for session in sessions:
        if len(session.tokens) > LONGEST - 60:
            session.rewind(session.turns - 1) if chance.random() < 0.5 else session.reset()
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(2, 12))) for _ in sessions]
    with held(engine):
        pairs = zip(sessions, texts, strict=True)
        replies = [session.reply(text, max_tokens=3) for session, text in pairs]
    return [reply.result() for reply in replies]


@pytest.fixture(scope="module", params=["1", "0"], ids=["paged", "contiguous"])
def day(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Day:
    folder = tmp_path_factory.mktemp("day")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXNB_CACHE", str(folder / "cache"))
        patch.setenv("MLXNB_PAGED", request.param)
        engine = LocalEngine(budget=BUDGET)
        try:
            return live_through(engine, ROOMY.save(folder / "model"))
        finally:
            engine.close()


def live_through(engine: LocalEngine, folder: Path) -> Day:
    name = engine.load(folder, progress=False).name
    spy, day, chance = watch(engine, name, keep_logits=False), Day(), random.Random(7)
    day.weights = engine.core.owner.call(memory)
    spy.on_call = lambda calls: look(engine, day)
    sessions = [
        engine.session(name, system=f"{WORDS[n % 5]} {WORDS[n % 7]}") for n in range(CONVERSATIONS)
    ]
    while len(day.turns) < TURNS:
        together = chance.choice((1, 1, 1, 2, 3)) if len(day.turns) < 2 * TURNS // 5 else 1
        few = chance.sample(sessions, together)
        turns = say(engine, few, chance)
        day.turns += turns
        spy.clear()
        day.memory += [engine.core.owner.call(memory)] * len(turns)
        if chance.random() < CHECKED / TURNS:
            check(engine, spy, turns, day)
    assert_settled(engine)
    return day


def look(engine: LocalEngine, day: Day) -> None:
    """In every step, on the engine's thread."""
    day.held = max(day.held, engine.core.store.nbytes)
    day.really_held = max(day.really_held, really_held(engine))
    day.most = max(day.most, memory() - day.weights)


def check(engine: LocalEngine, spy: Spy, turns: list[Turn], day: Day) -> None:
    for turn in turns:
        record = engine.ledger[turn.id]
        assert_same_tokens(spy, record, cold(engine, spy, [*record.prompt, *record.output]))
        day.cold += 1


def test_every_turn_was_answered(day: Day) -> None:
    assert len(day.turns) >= TURNS
    assert {turn.finish_reason for turn in day.turns} <= {"length", "stop"}


def test_the_budget_bound_and_most_was_reused_nevertheless(day: Day) -> None:
    prompts = sum(turn.prompt_tokens for turn in day.turns)
    assert day.held > 0.9 * BUDGET
    missed = sum(turn.cached_tokens < 50 < turn.prompt_tokens for turn in day.turns)
    assert missed > CONVERSATIONS
    assert sum(turn.cached_tokens for turn in day.turns) > 0.3 * prompts


def test_the_budget_was_held_in_every_step(day: Day) -> None:
    """C17."""
    assert day.held <= BUDGET
    assert day.really_held <= BUDGET


def test_little_came_on_top_of_the_budget(day: Day) -> None:
    """What is being computed, and buffers that were just freed."""
    assert day.most < 1.25 * BUDGET


def test_answers_were_those_of_a_cold_run(day: Day) -> None:
    assert day.cold >= 100


def test_memory_does_not_creep(day: Day) -> None:
    """Least squares over the last 500 turns, in bytes a turn."""
    last = np.array(day.memory[-500:], dtype=float)
    slope = np.polyfit(np.arange(len(last)), last, 1)[0]
    assert slope < 1024
