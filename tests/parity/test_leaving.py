"""Who leaves early, from wherever, leaves everything accounted for and within reach."""

from __future__ import annotations

import pytest

from .bench import Bench
from .settled import assert_settled, held

SYSTEM = "You say what you see, in as few words as you can, and you never repeat yourself."
HELLO = "hello there, what have you seen today?"


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
    with held(bench.engine):
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
    with held(bench.engine):
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
def test_who_waits_for_a_prefix_computes_it_when_the_other_dies(bench: Bench) -> None:
    one, other = bench.session(system=SYSTEM), bench.session(system=SYSTEM)
    with held(bench.engine):
        replies = [session.reply(HELLO, max_tokens=5) for session in (one, other)]
        bench.spy.on_call = lambda calls: replies[0].cancel() if calls == 3 else None
    first, second = (reply.outcome() for reply in replies)
    assert first.finish_reason == "cancelled" and second.finish_reason == "length"
    assert bench.fed(first, second) == second.prompt_tokens + 4
