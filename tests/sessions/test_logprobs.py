"""What the tokens of an answer were drawn from."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from mlxnb.errors import InvalidOption
from mlxnb.records.alternative import COLUMNS
from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine


def frame_of(turn: Turn) -> pd.DataFrame:
    frame = turn.logprobs
    assert frame is not None and list(frame.columns) == list(COLUMNS)
    return frame


def check(turn: Turn, count: int) -> None:
    """Every token is there, once, with those that were likelier than it."""
    frame = frame_of(turn)
    taken = frame[frame.taken]
    assert taken.position.tolist() == list(range(turn.output_tokens))
    assert taken.token_id.tolist() == turn.tokens
    assert (frame.logprob <= 0).all()
    for _, place in frame.groupby("position"):
        assert place.logprob.is_monotonic_decreasing and place["rank"].is_monotonic_increasing
        listed = place[place["rank"] < count]
        assert listed["rank"].tolist() == list(range(count))
        assert len(place) - len(listed) in (0, 1)
        assert math.fsum(map(math.exp, place.logprob)) <= 1 + 1e-5


def test_greedy_tokens_are_the_likeliest(engine: LocalEngine, tiny: str) -> None:
    turn = engine.session(tiny).send("hello", logprobs=4, max_tokens=12)
    check(turn, 4)
    frame = frame_of(turn)
    assert set(frame[frame.taken]["rank"]) == {0}
    text = "".join(frame[frame.taken].token)
    assert turn.text.strip() in text or "<0x" in text


def test_those_of_a_batch_are_those_of_each_alone(engine: LocalEngine, tiny: str) -> None:
    """One comes in the midst of another, and the last goes on alone."""
    said, more = ("hello", "so what", "and you?"), {"max_tokens": 20, "logprobs": 3, "seed": 7}
    alone = [engine.session(tiny, temperature=0.8).send(text, **more) for text in said]
    sessions = [engine.session(tiny, temperature=0.8, reuse=False) for _ in said]
    replies = [
        session.reply(text, **more | {"max_tokens": 8 + 6 * n})
        for n, (session, text) in enumerate(zip(sessions, said, strict=True))
    ]
    for reply, wanted in zip(replies, alone, strict=True):
        turn = reply.result()
        check(turn, 3)
        count = min(turn.output_tokens, wanted.output_tokens)
        frames = [frame[frame.position < count] for frame in map(frame_of, (turn, wanted))]
        assert frames[0].token_id.tolist() == frames[1].token_id.tolist()
        assert (frames[0].logprob - frames[1].logprob).abs().max() < 1e-3


def test_of_tokens_alone(engine: LocalEngine, tiny: str) -> None:
    turn = engine.session(tiny, temperature=2.0, seed=5).send("hi", logprobs=0, max_tokens=10)
    check(turn, 0)
    assert len(frame_of(turn)) == turn.output_tokens


def test_samples_have_their_own(engine: LocalEngine, tiny: str) -> None:
    turn = engine.session(tiny, temperature=1.5).send("hi", logprobs=2, n=3, max_tokens=9, seed=1)
    for choice in turn.choices:
        check(choice, 2)


def test_nobody_who_has_not_asked_has_any(engine: LocalEngine, tiny: str) -> None:
    assert engine.session(tiny).send("hi", max_tokens=2).logprobs is None
    session = engine.session(tiny, logprobs=1)
    check(session.send("hi", max_tokens=2), 1)


@pytest.mark.parametrize("value", [-1, 21, 1.5, True, "3"])
def test_a_number_that_it_cannot_be(engine: LocalEngine, tiny: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match="logprobs"):
        engine.session(tiny).send("hi", logprobs=value)
