"""Frames have the same columns and dtypes whatever is in them."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from conversation import NOON, turn
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.records.block_row import BlockRow
from mlxnb.records.frames import models_frame, prefix_frame, sessions_frame, turns_frame
from mlxnb.records.session_row import SessionRow
from mlxnb.records.turn import Timing, TurnRecord, Usage

TURNS = {
    "turn_id": "string",
    "session": "string",
    "model": "string",
    "source": "string",
    "host": "string",
    "started_at": "datetime64[us, UTC]",
    "cache": "string",
    "prompt_tokens": "Int64",
    "cached_tokens": "Int64",
    "prefill_tokens": "Int64",
    "output_tokens": "Int64",
    "reasoning_tokens": "Int64",
    "reuse": "float64",
    "pre_inference_s": "float64",
    "queue_s": "float64",
    "resolve_s": "float64",
    "load_wait_s": "float64",
    "load_owner": "boolean",
    "prefill_s": "float64",
    "ttft_s": "Float64",
    "decode_s": "float64",
    "total_s": "float64",
    "prefill_tps": "Float64",
    "decode_tps": "Float64",
    "saved_s": "Float64",
    "finish_reason": "string",
    "miss_reason": "string",
    "diverged_at": "Int64",
    "error": "string",
}
BLOCKS = {
    "block_id": "string",
    "parent_id": "string",
    "model": "string",
    "kind": "string",
    "start": "Int64",
    "tokens": "Int64",
    "refs": "Int64",
    "hits": "Int64",
    "bytes": "Int64",
    "tier": "string",
    "last_used": "datetime64[us, UTC]",
    "pinned": "boolean",
    "preview": "string",
}
SESSIONS = {
    "name": "string",
    "model": "string",
    "turns": "Int64",
    "tokens": "Int64",
    "cached_tokens": "Int64",
    "hot": "boolean",
    "history": "string",
    "forked_from": "string",
    "created_at": "datetime64[us, UTC]",
    "last_used": "datetime64[us, UTC]",
}
MODELS = {
    "name": "string",
    "family": "string",
    "parameters": "Int64",
    "quantization": "string",
    "context_length": "Int64",
    "bytes": "Int64",
    "loaded": "boolean",
    "batchable": "boolean",
    "reuse": "string",
    "fingerprint": "string",
    "path": "string",
    "kv_bits": "Int64",
}
WIDE_ONLY = {
    "fingerprint": "string",
    "salt": "string",
    "seed": "Int64",
    "temperature": "Float64",
    "max_tokens": "Int64",
    "batch_joins": "Int64",
    "copied_bytes": "Int64",
    "recomputed_tokens": "Int64",
    "reuse_enabled": "boolean",
    "rewindable": "boolean",
    "history": "string",
}
BLOCK = BlockRow(
    block_id="b2",
    parent_id=None,
    model="demo",
    kind="kv",
    start=0,
    tokens=32,
    refs=1,
    hits=4,
    bytes=4096,
    tier="memory",
    last_used=NOON,
    pinned=True,
    preview="You are",
)
SESSION = SessionRow(
    name="s1",
    model="demo",
    turns=2,
    tokens=120,
    cached_tokens=119,
    hot=True,
    history="exact",
    forked_from=None,
    created_at=NOON,
    last_used=NOON,
)
MODEL = SimpleNamespace(
    name="demo",
    family="llama",
    parameters=134_515_008,
    quantization=None,
    context_length=2048,
    bytes=10**11,
    loaded=False,
    batchable=None,
    reuse="full",
    fingerprint="ab",
    path="/models/demo",
    kv_bits=None,
)


def layout(frame: pd.DataFrame) -> dict[str, str]:
    return {name: str(dtype) for name, dtype in frame.dtypes.items()}


def row(frame: pd.DataFrame) -> dict[str, Any]:
    assert len(frame) == 1
    return {name: frame[name].iloc[0] for name in frame}


def example(**options: Any) -> TurnRecord:
    return turn(1, ("user", "Hi"), **options)


@pytest.mark.parametrize("records", [[], [example()], [example(), example(error="it failed")]])
def test_turns_have_their_columns_in_order(records: list[TurnRecord]) -> None:
    frame = turns_frame(records)
    assert list(layout(frame).items()) == list(TURNS.items())
    assert len(frame) == len(records)


@pytest.mark.parametrize(
    ("make", "one", "columns"),
    [
        (prefix_frame, BLOCK, BLOCKS),
        (sessions_frame, SESSION, SESSIONS),
        (models_frame, MODEL, MODELS),
    ],
)
def test_other_frames_have_their_columns_in_order(make: Any, one: Any, columns: Any) -> None:
    assert list(layout(make([])).items()) == list(columns.items())
    assert list(layout(make([one])).items()) == list(columns.items())
    assert list(layout(make(iter([one, one]))).items()) == list(columns.items())


@pytest.mark.parametrize("records", [[], [example(seed=7)]])
def test_wide_turns_append_the_other_fields(records: list[TurnRecord]) -> None:
    frame = layout(turns_frame(records, wide=True))
    assert list(frame)[: len(TURNS)] == list(TURNS)
    assert frame.items() >= WIDE_ONLY.items()
    assert not frame.keys() & {"prompt", "output", "spans", "usage", "timing"}


def test_wide_values_are_the_records() -> None:
    values = row(turns_frame([example(seed=2**62, temperature=0.5, salt="x")], wide=True))
    assert (values["seed"], values["temperature"], values["salt"]) == (2**62, 0.5, "x")
    assert values["max_tokens"] is pd.NA


def test_a_turns_values_come_from_its_usage_and_timing() -> None:
    timing = Timing(0.25, 0.5, 1.5, True, 0.125, 2.0, 4.0, 4.375, 8.375)
    values = row(
        turns_frame(
            [
                example(
                    usage=Usage(100, 80, 9, 3),
                    timing=timing,
                    saved_s=1.25,
                    diverged_at=80,
                    miss_reason="history_edited",
                )
            ]
        )
    )
    assert values["turn_id"] == "t1" and values["finish_reason"] == "stop"
    assert values["started_at"] == NOON + dt.timedelta(seconds=1)
    assert [values[name] for name in ("prompt_tokens", "cached_tokens")] == [100, 80]
    assert [values[name] for name in ("prefill_tokens", "output_tokens")] == [20, 9]
    assert values["reasoning_tokens"] == 3 and values["reuse"] == 0.8
    assert values["load_owner"]
    assert values["pre_inference_s"] == 0.25 and values["queue_s"] == 0.125
    assert values["resolve_s"] == 0.5 and values["load_wait_s"] == 1.5
    assert values["prefill_tps"] == 10.0 and values["decode_tps"] == 2.0
    assert values["ttft_s"] == 4.375 and values["total_s"] == 8.375 and values["saved_s"] == 1.25
    assert values["diverged_at"] == 80 and values["miss_reason"] == "history_edited"


def test_what_is_unknown_is_missing() -> None:
    values = row(turns_frame([example(finish_reason=None)]))
    unknown = ("session", "ttft_s", "saved_s", "finish_reason", "miss_reason", "diverged_at")
    assert all(values[name] is pd.NA for name in (*unknown, "error"))


@pytest.mark.parametrize("tokens", [0, 1])
def test_one_token_has_no_decode_rate(tokens: int) -> None:
    timing = Timing(decode_s=1.0, prefill_s=1.0, ttft_s=1.0)
    frame = turns_frame([example(usage=Usage(10, 0, tokens), timing=timing)])
    assert frame["decode_tps"].isna().all()


def test_a_prefill_that_did_not_end_has_no_rate() -> None:
    timing = Timing(prefill_s=1.0, ttft_s=None)
    frame = turns_frame([example(usage=Usage(10, 0, 0), timing=timing)])
    assert frame["prefill_tps"].isna().all()


def test_an_empty_prompt_reuses_nothing() -> None:
    assert turns_frame([example(usage=Usage())])["reuse"].tolist() == [0.0]


def test_instants_of_any_zone_are_utc() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    local = dt.datetime(2026, 11, 28, 14, tzinfo=zone)
    frame = turns_frame([example(started_at=local), example(started_at=NOON)])
    assert (frame["started_at"] == pd.Timestamp("2026-11-28T12:00Z")).all()


def test_rows_keep_their_order() -> None:
    frame = turns_frame([turn(number, ("user", "Hi")) for number in (3, 1, 2)])
    assert frame["turn_id"].tolist() == ["t3", "t1", "t2"]


def test_a_frame_is_a_copy() -> None:
    record = example()
    frame = turns_frame([record])
    record.model = "other"
    assert frame["model"].tolist() == ["demo"]


def test_blocks_sessions_and_models_show_their_values() -> None:
    block, session, model = (
        row(frame)
        for frame in (prefix_frame([BLOCK]), sessions_frame([SESSION]), models_frame([MODEL]))
    )
    assert block["parent_id"] is pd.NA and block["last_used"] == NOON and block["bytes"] == 4096
    assert session["cached_tokens"] == 119 and session["forked_from"] is pd.NA
    assert model["bytes"] == 10**11 and model["batchable"] is pd.NA


def test_a_model_without_a_column_is_refused() -> None:
    with pytest.raises(AttributeError, match="family"):
        models_frame([SimpleNamespace(name="demo")])


seconds = st.just(0.0) | st.floats(1e-9, 1e5)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    prompt = draw(st.integers(0, 200_000))
    cached = draw(st.integers(0, max(0, prompt - 1)))
    return Usage(prompt, cached, draw(st.integers(0, 5000)), draw(st.integers(0, 50)))


@st.composite
def timings(draw: st.DrawFn) -> Timing:
    return Timing(prefill_s=draw(seconds), decode_s=draw(seconds), ttft_s=draw(st.none() | seconds))


@given(st.lists(st.tuples(usages(), timings(), st.none() | st.integers(0, 2**31)), max_size=8))
def test_prompt_is_cached_plus_prefill_in_every_row(cases: list[Any]) -> None:
    frame = turns_frame(
        [example(usage=usage, timing=timing, diverged_at=at) for usage, timing, at in cases]
    )
    assert layout(frame) == TURNS
    assert (frame["prompt_tokens"] == frame["cached_tokens"] + frame["prefill_tokens"]).all()
    assert frame["reuse"].between(0, 1).all()
    rates = pd.concat([frame["prefill_tps"], frame["decode_tps"]]).dropna()
    assert all(math.isfinite(rate) and rate >= 0 for rate in rates)


def test_importing_frames_does_not_import_pandas() -> None:
    script = "import sys, mlxnb.records.frames, mlxnb.records.explain, mlxnb.records.ledger\n"
    script += "assert not {'pandas', 'numpy', 'mlx'} & set(sys.modules), 'imported'"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
