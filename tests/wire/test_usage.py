"""W26 to W28."""

from __future__ import annotations

import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.records.frames import turns_frame
from mlxnb.records.turn import Timing, TurnRecord, Usage
from mlxnb.wire.errors import WireError
from mlxnb.wire.headers import cache_headers, with_timings
from mlxnb.wire.usage import anthropic_usage, openai_usage, timings

USAGE = Usage(prompt_tokens=100, cached_tokens=60, output_tokens=11, reasoning_tokens=4)
TIMING = Timing(
    pre_inference_s=0.001,
    resolve_s=0.5,
    load_owner=True,
    queue_s=0.002,
    prefill_s=0.02,
    decode_s=0.1,
    ttft_s=0.523,
    total_s=0.623,
)


def record(usage: Usage = USAGE, timing: Timing = TIMING) -> TurnRecord:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return TurnRecord("t", None, "m", "responses", "h", at, usage=usage, timing=timing)


def test_w26_input_is_the_whole_prompt() -> None:
    assert openai_usage(USAGE) == {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 0},
        "output_tokens": 11,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 111,
    }


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_w27_the_input_counts_add_up_to_the_prompt(cached: int, computed: int) -> None:
    usage = anthropic_usage(Usage(prompt_tokens=cached + computed, cached_tokens=cached))
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert sum(usage[part] for part in parts) == cached + computed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_to_first_token_ms", 20.0),
        ("server_time_to_first_token_ms", 20.0),
        ("server_total_time_to_first_token_ms", 523.0),
        ("prefill_tokens_per_second", 2000.0),
        ("server_prefill_tokens_per_second", 2000.0),
        ("decode_tokens_per_second", 100.0),
        ("server_decode_tokens_per_second", 100.0),
        ("server_inference_elapsed_ms", 120.0),
        ("prefill_input_tokens", 40),
        ("cached_prefix_tokens", 60),
        ("server_queue_ms", 2.0),
        ("server_pre_inference_ms", 1.0),
        ("server_model_resolve_ms", 500.0),
        ("server_load_wait_ms", 0.0),
        ("server_prefill_chunk_tokens", 512),
    ],
)
def test_w28_timing(name: str, value: float) -> None:
    assert timings(record(), {"prefill_chunk_tokens": 512})[name] == pytest.approx(value)


def test_w28_whose_the_load_was_is_the_one_boolean() -> None:
    found = timings(record(), {})
    assert [n for n, value in found.items() if isinstance(value, bool)] == ["server_load_owner"]
    assert found["server_load_owner"] is True


def test_w28_cached_tokens_are_there_only_when_there_are_any() -> None:
    assert "cached_prefix_tokens" not in timings(record(Usage(prompt_tokens=5)), {})


def test_w28_what_was_not_reached_has_no_number() -> None:
    found = timings(record(timing=Timing(prefill_s=0.1)), {})
    assert not {name for name in found if "first_token" in name or "per_second" in name}


@given(st.floats() | st.none(), st.floats())
def test_w28_only_finite_numbers(ttft: float | None, decode: float) -> None:
    found = timings(record(timing=Timing(ttft_s=ttft, decode_s=decode)), {"x": math.inf})
    assert all(math.isfinite(value) for value in found.values())


def test_w28_the_frame_shows_the_same_rates() -> None:
    row = turns_frame([record()]).iloc[0]
    found = timings(record(), {})
    assert found["prefill_tokens_per_second"] == row["prefill_tps"]
    assert found["decode_tokens_per_second"] == row["decode_tps"]
    assert found["server_total_time_to_first_token_ms"] == row["ttft_s"] * 1000


class Planned:
    cache = "prefix_hit"
    cached_tokens = 64


def test_w21_headers_say_how_and_how_much() -> None:
    expected = {"X-Session-Cache": "prefix_hit", "X-Cached-Tokens": "64"}
    assert cache_headers(Planned()) == expected


def test_w21_no_count_where_nothing_is_reused() -> None:
    planned = Planned()
    planned.cached_tokens = 0
    assert "X-Cached-Tokens" not in cache_headers(planned)


# --- a header that asks (W28) -----------------------------------------------------------------


@pytest.mark.parametrize(("header", "wanted"), [("false", False), (" True", True)])
def test_w28_a_header_switches_timings(header: str, wanted: bool) -> None:
    assert with_timings({"model": "m"}, header) == {"model": "m", "timings": wanted}


def test_w28_the_bodys_own_field_is_stronger() -> None:
    assert with_timings({"timings": True}, "false") == {"timings": True}
    assert with_timings({"timings": True}, None) == {"timings": True}


def test_w28_no_header_changes_nothing() -> None:
    assert with_timings({"model": "m"}, None) == {"model": "m"}


def test_w28_a_header_that_says_neither_is_a_mistake() -> None:
    with pytest.raises(WireError, match="X-Mlxnb-Timings is true or false, not 'no'"):
        with_timings({}, "no")
