"""How large a prefill chunk is: what takes half a second at the rate that was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.engine.runtime import CHUNK_S, LARGEST, SMALLEST, Rate

from .running import Engine, prompt_of


def test_the_first_chunk_is_small() -> None:
    assert Rate().chunk == SMALLEST == 8
    assert Rate().mean is None


@pytest.mark.parametrize("speed", [0.5, 3, 20, 100, 1000, 50_000])
def test_chunks_grow_to_what_half_a_second_holds(speed: float) -> None:
    rate = Rate()
    for _ in range(20):
        chunk = rate.chunk
        rate.note(chunk, chunk / speed)
    assert rate.chunk / speed <= CHUNK_S or rate.chunk == SMALLEST
    assert rate.chunk == max(SMALLEST, min(LARGEST, int(0.8 * CHUNK_S * speed)))


def test_a_chunk_is_at_most_four_times_the_largest_so_far() -> None:
    rate = Rate()
    rate.note(8, 1e-6)
    assert rate.chunk == 32


def test_the_short_end_of_a_prompt_does_not_make_chunks_small() -> None:
    rate = Rate()
    for _ in range(10):
        rate.note(rate.chunk, rate.chunk / 1000)
    before = rate.chunk
    rate.note(1, 0.01)
    assert rate.chunk >= 0.9 * before


def test_a_slower_machine_is_noticed_soon() -> None:
    rate = Rate()
    for _ in range(10):
        rate.note(rate.chunk, rate.chunk / 1000)
    for _ in range(4):
        chunk = rate.chunk
        rate.note(chunk, chunk / 100)
    assert rate.chunk <= CHUNK_S * 120


def test_the_mean_is_of_all_that_was_computed() -> None:
    rate = Rate()
    rate.note(8, 1.0)
    rate.note(32, 1.0)
    assert rate.mean == 20.0


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 100)), max_size=30))
def test_a_chunk_is_always_between_the_smallest_and_the_largest(
    chunks: list[tuple[int, float]],
) -> None:
    rate = Rate()
    for tokens, seconds in chunks:
        rate.note(tokens, seconds)
        assert SMALLEST <= rate.chunk <= LARGEST


def test_prompts_are_computed_in_such_chunks(engine: Engine) -> None:
    engine.core.runtime("tiny").rate = rate = Rate()
    rate.note(8, 8 / 100)  # 100 tokens a second: 40 a chunk, but 32 at first
    request = engine.request(prompt_of(100), 1, reuse=False)
    engine.run(request)
    first = engine.models["tiny"].calls[0]
    assert [len(row) for row in first] == [32]
    assert request.record.prefill_chunks == len(engine.models["tiny"].calls) - 1
    assert rate.tokens == 8 + 99
