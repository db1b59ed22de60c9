"""The demo model, greedy: what is said warm is what is said cold, and the second turn is warm.

It takes its time on a CPU: texts are short, and tests build on each other's conversations.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.session import Session

from .settled import held

FIRST, SECOND, OTHER = "Name a big city.", "And a small one?", "And a river?"
TOKENS = 12
SYSTEM = "You are the guide of a museum of clocks. " + " ".join(
    f"Room {number} shows clocks of the year {1500 + 17 * number}." for number in range(1, 15)
)


@pytest.fixture(scope="module")
def engine(demo_path: Path) -> Iterator[LocalEngine]:
    engine = LocalEngine()
    engine.load("demo", progress=False)
    yield engine
    engine.close()


class Talk:
    """Two turns of a conversation, and a fork taken between them."""

    def __init__(self, engine: LocalEngine, reuse: bool) -> None:
        self.session = engine.session("demo", max_tokens=TOKENS, temperature=0.0, reuse=reuse)
        self.first = self.session.send(FIRST)
        self.fork = self.session.fork()
        self.second = self.session.send(SECOND)


@pytest.fixture(scope="module")
def warm(engine: LocalEngine) -> Talk:
    return Talk(engine, reuse=True)


@pytest.fixture(scope="module")
def cold(engine: LocalEngine) -> Talk:
    return Talk(engine, reuse=False)


@pytest.fixture(scope="module")
def cold_other(cold: Talk) -> Turn:
    """What a cold run says when the second turn is another one."""
    return cold.fork.send(OTHER)


def test_the_second_turn_finds_the_first_one_cached(warm: Talk) -> None:
    first, second = warm.first, warm.second
    assert second.cached_tokens >= first.prompt_tokens + first.output_tokens - 1


def test_answers_are_those_of_a_run_without_reuse(warm: Talk, cold: Talk) -> None:
    assert warm.first.tokens == cold.first.tokens
    assert warm.second.tokens == cold.second.tokens
    assert cold.first.cached_tokens == cold.second.cached_tokens == 0


def test_a_forks_answer_is_that_of_a_run_without_reuse(warm: Talk, cold_other: Turn) -> None:
    turn = warm.fork.send(OTHER)
    assert turn.tokens == cold_other.tokens
    assert turn.cached_tokens >= warm.first.prompt_tokens + warm.first.output_tokens - 1


def test_an_answer_after_an_interrupt_is_that_of_a_run_without_reuse(
    warm: Talk, cold_other: Turn
) -> None:
    session = warm.fork.fork()
    session.rewind(session.turns - 1)
    reply = session.reply("Tell me a long story about it.", max_tokens=100)
    next(reply.deltas())
    stopped = reply.stop()
    assert stopped.finish_reason == "cancelled" and stopped.text
    assert session.send(OTHER).tokens == cold_other.tokens


def test_a_rewound_sessions_answer_is_that_of_a_run_without_reuse(
    warm: Talk, cold_other: Turn
) -> None:
    session: Session = warm.session
    session.rewind()
    turn = session.send(OTHER)
    assert turn.tokens == cold_other.tokens
    assert turn.cached_tokens >= warm.first.prompt_tokens + warm.first.output_tokens - 1


def test_a_second_session_finds_the_system_text_cached(engine: LocalEngine) -> None:
    sessions = [engine.session("demo", system=SYSTEM, max_tokens=1) for _ in range(2)]
    tokens = len(engine.core.runtime("demo").tokenizer.encode(SYSTEM))
    assert tokens >= 200
    sessions[0].send("Where is the oldest?")
    turn = sessions[1].send("What is in room 3?")
    assert turn.cached_tokens >= tokens


def test_answers_beside_others_are_those_alone(engine: LocalEngine) -> None:
    texts = [FIRST, SECOND, OTHER]
    options = {"max_tokens": TOKENS, "temperature": 0.0}
    alone = [engine.session("demo", reuse=False, **options).send(text) for text in texts]
    with held(engine):
        replies = [engine.session("demo", **options).reply(text) for text in texts]
    beside = [reply.result() for reply in replies]
    assert [turn.tokens for turn in beside] == [turn.tokens for turn in alone]
    assert engine.turns(wide=True).batch_joins.max() > 0
