"""Many clients at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mlxnb.engine.sampling import Sampling
from mlxnb.sessions.local import LocalEngine

from .world import Following, World

Talker = Callable[..., str]


def test_sixteen_at_once_of_which_four_leave(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    """W43, W45: the others' answers are as if alone, and nothing stays pinned."""
    talker("An answer that takes some steps to be said from its beginning to its end.")
    alone = world.ask("Question 0").turn
    assert alone is not None
    barrier = threading.Barrier(16)
    following: dict[int, Following] = {}

    def client(number: int) -> None:
        barrier.wait()
        following[number] = world.begin(f"Question {number}", store=True)
        if number % 4 == 3:
            following[number].answer.cancel()

    threads = [threading.Thread(target=client, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    turns = {number: each.wait() for number, each in following.items()}
    for number, turn in turns.items():
        if number % 4 != 3:
            assert turn.text == alone.text
    assert not [b for b in engine.core.store.index if b.refs]
    assert not [live for live in engine.core.store.lives() if live.running or live.plans]
    assert world.service._activity.in_flight["talker"] == 0
    assert all(row.finish_reason is not None for row in engine.ledger)


def test_chains_side_by_side_do_not_mix(world: World, talker: Talker) -> None:
    talker("One.", "Two.", "Three.", "Four.")
    texts: dict[str, list[str]] = {}

    def client(name: str) -> None:
        answers = world.stored_chain(*[f"{name} {n}" for n in range(4)], caller=name)
        texts[name] = [a.turn.text for a in answers if a.turn is not None]

    threads = [threading.Thread(target=client, args=(n,)) for n in ("ada", "bob", "cy", "dee")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(map(tuple, texts.values())) == {("One.", "Two.", "Three.", "Four.")}


def test_a_header_never_promises_what_does_not_come(world: World, talker: Talker) -> None:
    """W21: what is told at the beginning is a lower bound of what the row says."""
    talker("One two three.", "Four five six.")
    barrier = threading.Barrier(8)
    following: list[Following] = []

    def client(number: int) -> None:
        barrier.wait()
        system = "A system text that all of them have in common, and not a short one."
        following.append(world.begin(f"{number}", system=system, sampling=Sampling(max_tokens=4)))

    for _ in range(2):
        threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for each in following:
        usage = each.wait().usage
        assert usage.cached_tokens >= each.answer.cached_tokens
        assert each.answer.record.cache == each.answer.cache
