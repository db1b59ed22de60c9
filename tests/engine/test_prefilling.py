"""Whose chunk is next: short prompts do not wait for long ones, and long ones are not starved."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mlxnb.engine.admission import MAX_ROWS
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Rate

from .running import Engine, prompt_of, start_together, wait

CHUNK = 16


@pytest.fixture(autouse=True)
def fixed_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rate, "chunk", property(lambda rate: CHUNK))


class Arrivals:
    """Starts requests at a chunk of a long prompt, and notes at each how far they had got."""

    def __init__(self, engine: Engine, long: Request, short: list[Request], at: int = 3) -> None:
        self.begun = 0
        self.answered: list[int] = []
        """For each chunk of the long prompt that begins, how many of the others have a token."""
        self._short = short
        self._long = long
        self._engine = engine
        self._at = at
        engine.models["tiny"].before = self._look

    def _look(self, ids: list[list[int]]) -> None:
        if len(ids[0]) < CHUNK or not _is_of(ids[0], self._long):
            return
        self.begun += 1
        if self.begun > self._at:
            self.answered.append(sum(bool(request.generated) for request in self._short))
        if self.begun == self._at:
            for request in self._short:
                self._engine.start(request, limited=False)


def long_one(engine: Engine, chunks: int = 20) -> Request:
    return engine.request(prompt_of(chunks * CHUNK + 1), 2, reuse=False)


def short_one(engine: Engine, seed: int, tokens: int = 5) -> Request:
    return engine.request(prompt_of(tokens, seed=seed + 2), 4, reuse=False)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside one that decodes"])
def test_a_short_prompt_waits_for_the_chunk_under_way_alone(engine: Engine, beside: bool) -> None:
    running = engine.request(prompt_of(3, seed=9), 400, reuse=False)
    if beside:
        engine.start(running)
    long, short = long_one(engine), short_one(engine, 0)
    arrivals = Arrivals(engine, long, [short])
    engine.start(long)
    assert wait(short).error is None and wait(long).error is None
    assert arrivals.answered[0] == 1
    if beside:
        running.cancelled = True
        wait(running)
    assert short.generated == engine.alone(short.prompt, 4)
    assert long.generated == engine.alone(long.prompt, 2)


def test_some_short_ones_together_wait_no_longer(engine: Engine) -> None:
    long, short = long_one(engine), [short_one(engine, n) for n in range(3)]
    arrivals = Arrivals(engine, long, short)
    engine.start(long)
    assert all(wait(request).error is None for request in [*short, long])
    assert arrivals.answered[0] == 3


def test_who_was_passed_by_a_chunk_of_others_is_passed_no_more(engine: Engine) -> None:
    """Of seven that have half a chunk, two pass; the rest goes round with the long one."""
    long = long_one(engine)
    short = [short_one(engine, n, tokens=CHUNK // 2) for n in range(7)]
    arrivals = Arrivals(engine, long, short)
    engine.start(long)
    assert all(wait(request).error is None for request in [*short, long])
    assert arrivals.answered[:2] == [2, 7]


def test_a_stream_of_newcomers_does_not_starve_who_is_here(engine: Engine) -> None:
    """Three half chunks come at each chunk: a turn comes when each other row has had one or so."""
    long, lengths = long_one(engine, chunks=8), []
    newcomers: list[Request] = []

    def look(ids: list[list[int]]) -> None:
        if len(ids) > 1 or len(ids[0]) == 1 or long.done:
            return
        lengths.append(len(ids[0]))
        if not long.generated and len(newcomers) < 90:
            newcomers.extend(short_one(engine, len(newcomers), CHUNK // 2 + 1) for _ in range(3))
            for request in newcomers[-3:]:
                request.prefill_only = True
                engine.start(request, limited=False)

    engine.models["tiny"].before = look
    engine.start(long)
    assert wait(long).error is None
    assert all(wait(request).error is None for request in newcomers)
    assert lengths.count(CHUNK) == 8
    turns = [n for n, length in enumerate(lengths) if length == CHUNK]
    assert max(b - a for a, b in pairwise(turns)) <= MAX_ROWS + 2, lengths


def test_one_who_leaves_before_its_turn_holds_nobody_up(engine: Engine) -> None:
    long, short = long_one(engine), [short_one(engine, n) for n in range(3)]
    arrivals = Arrivals(engine, long, short)
    short[0].cancelled = True
    engine.start(long)
    assert all(wait(request).error is None for request in [*short, long])
    assert short[0].generated == [] and arrivals.answered[0] == 2


def test_long_ones_go_round(engine: Engine) -> None:
    requests = [engine.request(prompt_of(4 * CHUNK + 1, seed=n), 1, reuse=False) for n in (3, 4, 5)]
    start_together(engine, requests)
    assert all(wait(request).error is None for request in requests)
    chunks = [rows[0] for rows in engine.models["tiny"].calls if len(rows[0]) == CHUNK]
    whose = [next(n for n, r in enumerate(requests) if _is_of(chunk, r)) for chunk in chunks]
    assert whose == [0, 1, 2] * 4


def _is_of(chunk: list[int], request: Request) -> bool:
    prompt = request.prompt
    return any(prompt[n : n + CHUNK] == chunk for n in range(0, len(prompt), CHUNK))
