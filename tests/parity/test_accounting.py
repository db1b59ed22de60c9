"""What the frames say was computed is what the model was fed, token for token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .bench import Bench
from .settled import held

FolderOf = Callable[[str], Path]
SYSTEM = "You say what you see, in as few words as you can, and you never repeat yourself."
HELLO = "hello there, what have you seen today?"


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
