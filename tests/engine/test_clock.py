"""A wall clock that is set ahead or back while an engine runs."""

from __future__ import annotations

import time
from itertools import cycle

import pytest

from mlxnb.mlxlm import STEP

from .running import Engine, prompt_of, wait

YEAR = 365 * 86400.0


@pytest.fixture
def wild(monkeypatch: pytest.MonkeyPatch) -> None:
    """A year ahead, a year back, and so on."""
    right, off = time.time, cycle([YEAR, -YEAR, 0.0])
    monkeypatch.setattr(time, "time", lambda: right() + next(off))


@pytest.mark.usefixtures("wild", "contiguous")
def test_what_was_used_least_recently_still_goes_first(engine: Engine) -> None:
    step = int(STEP * engine.core.store.space("tiny").pool.token_bytes)
    engine.core.budget = 3 * step
    for n in range(5):
        engine.run(engine.request(prompt_of(100, seed=n), 4, owner=f"s{n}"))
    assert [live.owner for live in engine.core.store.space("tiny").hot()] == ["s2", "s3", "s4"]


@pytest.mark.usefixtures("wild")
def test_nobody_is_taken_for_stuck_or_late(engine: Engine) -> None:
    requests = [engine.request(prompt_of(60 + n, seed=n), 20) for n in range(3)]
    engine.run(*requests)
    for request in requests:
        assert request.generated == engine.alone(request.prompt, 20)
        timing = request.clock.timing(time.perf_counter())
        phases = timing.queue_s, timing.prefill_s, timing.decode_s, timing.total_s
        assert min(phases) >= 0 and timing.total_s < 60
    assert engine.core.restarts == 0 and engine.core.owner.healthy
    assert wait(engine.start(engine.request(prompt_of(20), 2))).error is None
