"""A prompt of 6,000 tokens is computed while another request decodes and a short one arrives.

What is asserted is counted in chunks of the long prompt; seconds are printed (``pytest -s``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxnb.engine.request import Request
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.local_reply import LocalReply

TOKENS = 6000
ENDLESS = 2000
"""Tokens that the request that decodes may have; it is cancelled in the end."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A call of the model: when, and what each request had by then."""

    at: float
    chunks: int
    running: int
    short: int


@dataclass(eq=False)
class Watch:
    """Stands in for the model, and notes every call."""

    model: Any
    long: Request | None = None
    running: Request | None = None
    short: Request | None = None
    moments: list[Moment] = field(default_factory=list)

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        self.moments.append(
            Moment(
                time.perf_counter(),
                0 if self.long is None else self.long.record.prefill_chunks,
                _given(self.running),
                _given(self.short),
            )
        )
        out: mx.array = self.model(inputs, cache=cache)
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def during_prefill(self) -> list[Moment]:
        """From the long prompt's first chunk to its last."""
        last = self.moments[-1].chunks
        return [moment for moment in self.moments if 0 < moment.chunks < last]


def _given(request: Request | None) -> int:
    return 0 if request is None else len(request.generated)


def request_of(reply: Any) -> Request:
    assert isinstance(reply, LocalReply)
    return reply._requests[0]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


@pytest.fixture(scope="module")
def engine(demo_path: Path) -> Iterator[LocalEngine]:
    engine = LocalEngine(budget=1024 * 2**20)
    engine.load("demo", progress=False)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def watch(engine: LocalEngine) -> Watch:
    """What happened: one request decodes, a long one comes, and in its midst a short one."""
    runtime = engine.core.runtime("demo")
    watch = runtime.model = Watch(runtime.model)
    never = dict.fromkeys(runtime.end_tokens, -1000.0)
    options: dict[str, Any] = {"temperature": 0.0, "logit_bias": never, "reuse": False}
    running = engine.session("demo", max_tokens=ENDLESS, **options).reply("Tell a long story.")
    watch.running = request_of(running)
    until(lambda: _given(watch.running) >= 3)
    long = engine.session("demo", max_tokens=2, **options).reply(text_of(engine))
    watch.long = request_of(long)
    until(lambda: request_of(long).record.prefill_chunks >= 2)
    short = engine.session("demo", max_tokens=4, **options).reply("And you?")
    watch.short = request_of(short)
    assert short.result().output_tokens == 4
    assert long.result().prompt_tokens >= TOKENS
    running.stop()
    return watch


def text_of(engine: LocalEngine) -> str:
    """About so many tokens."""
    encode = engine.core.runtime("demo").tokenizer.encode
    line = "Room {} of the museum shows clocks and a bell of the year {}. "
    lines: list[str] = []
    while len(encode("".join(lines))) < TOKENS:
        lines += [line.format(n, 1500 + n) for n in range(len(lines), len(lines) + 50)]
    return "".join(lines)


def test_the_prompt_is_computed_in_many_chunks(watch: Watch) -> None:
    assert watch.long is not None
    assert watch.long.record.prefill_chunks >= 6
    assert len(watch.long.prompt) >= TOKENS


def test_the_one_that_decodes_gets_a_token_within_two_chunks(watch: Watch) -> None:
    moments = watch.during_prefill()
    assert moments[-1].running < ENDLESS, "it ended before the long one"
    begins: dict[int, int] = {}  # the chunk at which each token of the running one was there
    for moment in moments:
        begins.setdefault(moment.running, moment.chunks)
    waits = [later - earlier for earlier, later in pairwise(begins.values())]
    assert len(waits) >= 3 and max(waits) <= 2
    print(f"\n{len(waits)} tokens while {moments[-1].chunks} chunks were computed")
    print(f"worst gap of the running one: {worst_gap(moments, 'running'):.2f} s")


def test_the_short_one_begins_within_two_chunks(watch: Watch) -> None:
    assert watch.short is not None and watch.long is not None
    came = next(m for m in watch.moments if m.at >= (watch.short.clock.queued or 0.0))
    first = next(m for m in watch.moments if m.short > 0)
    assert first.chunks < watch.long.record.prefill_chunks, "the long one was done before it"
    assert first.chunks - came.chunks <= 2
    timing = watch.short.clock.timing(time.perf_counter())
    print(f"\nfirst token of the short one: {timing.ttft_s:.2f} s after it came")


def worst_gap(moments: list[Moment], who: str) -> float:
    """The longest time between two tokens, in seconds."""
    firsts: dict[int, float] = {}
    for moment in moments:
        firsts.setdefault(getattr(moment, who), moment.at)
    return max((later - earlier for earlier, later in pairwise(firsts.values())), default=0.0)
