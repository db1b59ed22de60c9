"""Many at once: from many threads, with seeds, on two models."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine

from .settled import assert_settled, held
from .spy import assert_parity, watch
from .world import WORDS

FolderOf = Callable[[str], Path]
SYSTEM = "You say what you see, in as few words as you can, and you never repeat yourself."


def together(*acts: Callable[[], None]) -> None:
    """Run functions in threads of their own; the first failure is raised."""
    failures: list[BaseException] = []

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.usefixtures("caches")
@pytest.mark.parametrize("budget", [2**26, 1_500_000], ids=["plenty", "evicting"])
def test_eight_threads_with_a_session_each(
    engine: LocalEngine, folder_of: FolderOf, budget: int
) -> None:
    """C16."""
    name = engine.load(folder_of("llama"), progress=False).name
    engine.core.budget = budget
    spy = watch(engine, name)
    turns: list[Turn] = []

    def talk(number: int) -> None:
        mine = random.Random(number)
        system = SYSTEM if number % 2 else None
        session = engine.session(name, system=system)
        for _ in range(8):
            text = " ".join(mine.choices(WORDS, k=mine.randint(1, 20)))
            reply = session.reply(text, max_tokens=mine.randint(1, 12))
            if mine.random() < 0.2:
                reply.cancel()
            turns.append(reply.outcome())
            if mine.random() < 0.2 and session.turns:
                session.rewind()

    together(*(lambda number=number: talk(number) for number in range(8)))
    assert {turn.finish_reason for turn in turns} <= {"stop", "length", "cancelled"}
    assert len(turns) == 64 and max(spy.rows) > 1
    assert_parity(engine, spy, [engine.ledger[turn.id] for turn in turns])
    assert_settled(engine)


@pytest.mark.usefixtures("caches")
def test_two_models_at_once(engine: LocalEngine, folder_of: FolderOf) -> None:
    """C14."""
    names = [engine.load(folder_of(n), progress=False).name for n in ("llama", "qwen3")]
    spies = {name: watch(engine, name) for name in names}
    for round_ in range(3):
        with held(engine):
            replies = [
                engine.session(name, system=SYSTEM).reply(f"{word} {round_}", max_tokens=8)
                for word in ("say", "see", "do")
                for name in names
            ]
        turns = [reply.result() for reply in replies]
        for name, spy in spies.items():
            records = [engine.ledger[turn.id] for turn in turns if turn.model == name]
            assert len(records) == 3
            assert_parity(engine, spy, records)
    assert_settled(engine)


def test_a_seed_draws_the_same_alone_and_among_seven_others(
    engine: LocalEngine, folder_of: FolderOf
) -> None:
    name = engine.load(folder_of("llama"), progress=False).name
    spy = watch(engine, name)
    drawn = {"temperature": 1.0, "top_p": 0.95, "max_tokens": 12}
    alone = [
        engine.session(name, reuse=False).send(f"say {word}", seed=seed, **drawn)
        for seed, word in enumerate(WORDS[:8])
    ]
    assert set(spy.rows) == {1}
    for _ in range(2):  # the second time, all of the prompts is cached
        with held(engine):
            replies = [
                engine.session(name).reply(f"say {word}", seed=seed, **drawn)
                for seed, word in enumerate(WORDS[:8])
            ]
        beside = [reply.result() for reply in replies]
        assert max(spy.rows) > 4
        assert [turn.tokens for turn in beside] == [turn.tokens for turn in alone]


def test_each_token_is_drawn_anew(engine: LocalEngine, folder_of: FolderOf) -> None:
    name = engine.load(folder_of("llama"), progress=False).name
    options = {"temperature": 100.0, "max_tokens": 40, "seed": 3}
    session = engine.session(name, logit_bias={t: -1e9 for t in (2, *range(300, 316))})
    assert len(set(session.send("say it", **options).tokens)) > 30


def test_samples_of_one_request_are_those_of_its_seeds_alone(
    engine: LocalEngine, folder_of: FolderOf
) -> None:
    name = engine.load(folder_of("qwen3"), progress=False).name
    drawn = {"temperature": 1.0, "max_tokens": 8}
    turn = engine.session(name, system=SYSTEM).send("say it", n=4, seed=11, **drawn)
    alone = [
        engine.session(name, system=SYSTEM, reuse=False).send("say it", seed=11 + n, **drawn)
        for n in range(4)
    ]
    assert [choice.tokens for choice in turn.choices] == [other.tokens for other in alone]
    assert len({tuple(choice.tokens) for choice in turn.choices}) > 1


def test_penalties_look_at_the_cached_part_of_a_prompt_too(
    engine: LocalEngine, folder_of: FolderOf
) -> None:
    name = engine.load(folder_of("llama"), progress=False).name
    options = {"repetition_penalty": 1.5, "frequency_penalty": 0.5, "max_tokens": 12}
    cold, warm = (engine.session(name, reuse=reuse, **options) for reuse in (False, True))
    for text in ("say it", "and again", "and once more"):
        with held(engine):
            others = [engine.session(name).reply(f"{text} {n}", max_tokens=9) for n in range(2)]
            reply = warm.reply(text)
        assert reply.result().tokens == cold.send(text).tokens
        for other in others:
            other.result()
    assert engine.turns().cached_tokens.max() > 20
