"""What the frames say was computed is what the model was fed, token for token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.session import Session

from .spy import Spy, accounted, watch
from .world import assert_settled, held

FolderOf = Callable[[str], Path]
SYSTEM = "You say what you see, in as few words as you can, and you never repeat yourself."
HELLO = "hello there, what have you seen today?"
NEVER = {token: -1000.0 for token in (2, *range(300, 316))}
"""End tokens, kept from being chosen: an answer is as long as it may be."""


class Bench:
    """An engine with one model, and what it is fed."""

    def __init__(self, engine: LocalEngine, folder: Path) -> None:
        self.engine = engine
        self.name = engine.load(folder, progress=False).name
        self.spy: Spy = watch(engine, self.name)

    def session(self, **options: object) -> Session:
        return self.engine.session(self.name, logit_bias=NEVER, **options)

    def fed(self, *turns: Turn) -> int:
        """Tokens fed since the last call; the turns' rows must account for all of them."""
        rows = [self.engine.ledger[turn.id] for turn in turns]
        accounted(self.spy, rows)
        total = self.spy.total
        if all(turn.tokens for turn in turns):
            assert total == sum(r.usage.prefill_tokens + r.decode_inputs for r in rows)
        self.spy.clear()
        return total


@pytest.fixture(params=["llama", "qwen3", "gemma2"])
def bench(request: pytest.FixtureRequest, engine: LocalEngine, folder_of: FolderOf) -> Bench:
    """Gemma 2 cannot be batched: what holds for one request at a time holds for it too."""
    return Bench(engine, folder_of(request.param))


@pytest.fixture
def batching(engine: LocalEngine, folder_of: FolderOf) -> Bench:
    return Bench(engine, folder_of("llama"))


@pytest.fixture
def slow_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Prefill eight tokens at a time."""
    from mlxnb.engine.runtime import Rate

    with monkeypatch.context() as patch:
        patch.setattr(Rate, "chunk", property(lambda rate: 8))
        yield


def test_a_first_turn_feeds_its_prompt_and_all_but_the_last_answer_token(bench: Bench) -> None:
    turn = bench.session().send(HELLO, max_tokens=5)
    assert turn.output_tokens == 5 and turn.cached_tokens == 0
    assert bench.fed(turn) == turn.prompt_tokens + 4


def test_an_answer_of_one_token_feeds_the_prompt_alone(bench: Bench) -> None:
    turn = bench.session().send(HELLO, max_tokens=1)
    assert bench.fed(turn) == turn.prompt_tokens


def test_a_second_turn_feeds_what_the_first_did_not(bench: Bench) -> None:
    session = bench.session()
    first = session.send(HELLO, max_tokens=5)
    bench.fed(first)
    second = session.send("and then?", max_tokens=4)
    assert second.cached_tokens == first.prompt_tokens + first.output_tokens - 1
    assert bench.fed(second) == second.prompt_tokens - second.cached_tokens + 3


def test_a_fork_feeds_its_own_words_alone(bench: Bench) -> None:
    session = bench.session(system=SYSTEM)
    first = session.send(HELLO, max_tokens=5)
    fork = session.fork()
    session.send("go on", max_tokens=3)
    bench.spy.clear()
    turn = fork.send("and something else?", max_tokens=3)
    assert turn.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    assert bench.fed(turn) == turn.prompt_tokens - turn.cached_tokens + 2


def test_two_forks_in_turn_feed_their_own_words_alone(bench: Bench) -> None:
    session = bench.session(system=SYSTEM)
    session.send(HELLO, max_tokens=5)
    forks = [session.fork(), session.fork()]
    ends = [len(session.tokens)] * 2
    for _ in range(3):
        for number, fork in enumerate(forks):
            bench.spy.clear()
            turn = fork.send(f"and {number}?", max_tokens=3)
            assert turn.cached_tokens >= ends[number] - 1
            assert bench.fed(turn) == turn.prompt_tokens - turn.cached_tokens + 2
            ends[number] = len(fork.tokens)


def test_a_rewound_session_recomputes_nothing_that_stays(bench: Bench) -> None:
    session = bench.session()
    first = session.send(HELLO, max_tokens=5)
    session.send("a way to go astray", max_tokens=5)
    session.rewind()
    bench.spy.clear()
    turn = session.send("another way", max_tokens=3)
    assert turn.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    assert bench.fed(turn) == turn.prompt_tokens - turn.cached_tokens + 2


def test_what_was_rewound_and_is_said_again_is_cached(bench: Bench) -> None:
    session = bench.session()
    session.send(HELLO, max_tokens=5)
    before = session.send("the same words", max_tokens=5)
    session.rewind()
    bench.spy.clear()
    again = session.send("the same words", max_tokens=5)
    assert again.tokens == before.tokens
    assert again.cached_tokens == again.prompt_tokens - 1
    assert bench.fed(again) == 1 + 4


def test_without_reuse_every_turn_feeds_its_whole_prompt(bench: Bench) -> None:
    session = bench.session(reuse=False)
    for text in (HELLO, "and then?", "and then?"):
        turn = session.send(text, max_tokens=3)
        assert turn.cached_tokens == 0
        assert bench.fed(turn) == turn.prompt_tokens + 2
    assert bench.engine.prefix_cache().empty


def test_a_ragged_batch_feeds_no_padding(batching: Bench) -> None:
    sessions = [batching.session() for _ in range(4)]
    texts = [" ".join([HELLO] * (1 + number)) for number in range(4)]
    with held(batching.engine):
        pairs = zip(sessions, texts, strict=True)
        replies = [session.reply(text, max_tokens=12) for session, text in pairs]
    turns = [reply.result() for reply in replies]
    assert max(batching.spy.rows) == 4
    batching.fed(*turns)
    with held(batching.engine):
        replies = [session.reply("go on", max_tokens=3 + n) for n, session in enumerate(sessions)]
    again = [reply.result() for reply in replies]
    for first, second in zip(turns, again, strict=True):
        assert second.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    batching.fed(*again)


def test_who_leaves_a_batch_has_all_of_their_answer_cached(batching: Bench) -> None:
    """By cancelling, by ending, and by being the last one in it."""
    sessions = [batching.session() for _ in range(3)]
    with held(batching.engine):
        replies = [
            session.reply(f"{HELLO} {number}", max_tokens=tokens)
            for number, (session, tokens) in enumerate(zip(sessions, (6, 40, 30), strict=True))
        ]
    batching.spy.on_call = lambda calls: replies[1].cancel() if calls > 20 else None
    turns = [reply.outcome() for reply in replies]
    assert [turn.finish_reason for turn in turns] == ["length", "cancelled", "length"]
    batching.fed(*turns)
    for session, turn in zip(sessions, turns, strict=True):
        if turn.finish_reason == "length":
            again = session.send("go on", max_tokens=2)
            assert again.cached_tokens >= turn.prompt_tokens + turn.output_tokens - 1


@pytest.mark.parametrize("who", [0, 1, 2])
def test_a_cancel_at_any_step_of_a_batch_is_accounted_for(batching: Bench, who: int) -> None:
    """Before, in and right after a join; as the first to leave and as the last."""
    for step in range(1, 22):
        sessions = [batching.session(cache_salt=f"{step}") for _ in range(3)]
        with held(batching.engine):
            replies = [
                s.reply(f"{HELLO} {n}" * (n + 1), max_tokens=8) for n, s in enumerate(sessions)
            ]
        start = batching.spy.calls
        batching.spy.on_call = lambda calls: (
            replies[who].cancel() if calls == start + step else None  # noqa: B023
        )
        turns = [reply.outcome() for reply in replies]
        batching.fed(*turns)
        assert_settled(batching.engine)


@pytest.mark.usefixtures("slow_chunks")
def test_what_was_computed_before_a_cancel_in_prefill_is_reused(bench: Bench) -> None:
    """C23."""
    session = bench.session(system=SYSTEM)
    reply = session.reply(HELLO, max_tokens=5)
    bench.spy.on_call = lambda calls: reply.cancel() if calls == 3 else None
    cancelled = reply.outcome()
    assert cancelled.finish_reason == "cancelled" and not cancelled.tokens
    done = bench.fed(cancelled)
    assert 0 < done < cancelled.prompt_tokens - 1
    turn = session.send(HELLO, max_tokens=5)
    assert turn.prompt_tokens == cancelled.prompt_tokens
    assert turn.cached_tokens == done
    assert bench.fed(turn) == turn.prompt_tokens - done + 4


def test_a_cancelled_answer_stays_cached_and_out_of_the_history(bench: Bench) -> None:
    session = bench.session()
    session.send(HELLO, max_tokens=3)
    before = list(session.history)
    reply = session.reply("go on", max_tokens=50)
    bench.spy.on_call = lambda calls: reply.cancel() if calls > 12 else None
    turn = reply.outcome()
    bench.spy.on_call = lambda calls: None
    assert turn.finish_reason == "cancelled" and 0 < len(turn.tokens) < 50
    assert session.history == before
    bench.spy.clear()
    again = session.send("go on", max_tokens=len(turn.tokens))
    assert again.tokens == turn.tokens
    assert again.cached_tokens == again.prompt_tokens - 1
    bench.fed(again)


@pytest.mark.usefixtures("slow_chunks")
def test_the_same_prompt_while_it_is_computed_is_computed_once(bench: Bench) -> None:
    one, other = bench.session(system=SYSTEM), bench.session(system=SYSTEM)
    with held(bench.engine):
        replies = [session.reply(HELLO, max_tokens=5) for session in (one, other)]
    first, second = (reply.result() for reply in replies)
    assert second.tokens == first.tokens
    assert first.cached_tokens == 0
    assert second.cached_tokens == second.prompt_tokens - 1
    bench.fed(first, second)


@pytest.mark.usefixtures("slow_chunks")
def test_who_waits_for_a_prefix_computes_it_when_the_other_dies(bench: Bench) -> None:
    one, other = bench.session(system=SYSTEM), bench.session(system=SYSTEM)
    with held(bench.engine):
        replies = [session.reply(HELLO, max_tokens=5) for session in (one, other)]
    bench.spy.on_call = lambda calls: replies[0].cancel() if calls == 3 else None
    first, second = (reply.outcome() for reply in replies)
    assert first.finish_reason == "cancelled" and second.finish_reason == "length"
    assert bench.fed(first, second) == second.prompt_tokens + 4


def test_further_samples_of_one_prompt_compute_it_once(bench: Bench) -> None:
    turn = bench.session(system=SYSTEM).send(HELLO, max_tokens=4, n=4)
    assert [choice.tokens for choice in turn.choices] == [turn.tokens] * 4
    assert [choice.prefill_tokens for choice in turn.choices] == [turn.prompt_tokens, 1, 1, 1]
    bench.fed(*turn.choices)


def test_prompt_is_cached_and_prefill_in_every_row(bench: Bench) -> None:
    session = bench.session(system=SYSTEM)
    for _ in range(3):
        session.send(HELLO, max_tokens=2)
    reply = session.reply(HELLO, max_tokens=9)
    reply.stop()
    rows = bench.engine.turns()
    assert (rows.prompt_tokens == rows.cached_tokens + rows.prefill_tokens).all()
