"""An answer that was begun, made by hand, and turns that end it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from mlxnb.engine.events import Piece
from mlxnb.records.turn import FinishReason, Timing, ToolCall, Turn, TurnRecord, Usage

USAGE = Usage(prompt_tokens=20, cached_tokens=12, output_tokens=7, reasoning_tokens=2)
TIMING = Timing(prefill_s=0.1, decode_s=0.2, ttft_s=0.15, total_s=0.35)


def record() -> TurnRecord:
    at = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    return TurnRecord("t1", None, "demo", "responses", "host", at, usage=USAGE, timing=TIMING)


@dataclass
class FakeAnswer:
    """What a machine reads of an answer."""

    response_id: str = "resp_abcdefgh_0123456789abcdef01234567"
    asked_model: str = "claude-x"
    created: int = 1_800_000_000
    prompt_tokens: int = 20
    cached_tokens: int = 12
    record: TurnRecord = field(default_factory=record)
    tuning: dict[str, float] = field(default_factory=lambda: {"prefill_chunk_tokens": 512})
    error: Exception | None = None


def turn(reason: FinishReason = "stop", **fields: Any) -> Turn:
    return Turn("t1", finish_reason=reason, usage=USAGE, timing=TIMING, **fields)


def text(value: str) -> Piece:
    return Piece("text", value)


def thought(value: str) -> Piece:
    return Piece("reasoning", value)


def call(name: str = "f", arguments: dict[str, Any] | None = None, id: str = "call_1") -> Piece:
    return Piece("tool_call", call=ToolCall(id, name, arguments if arguments is not None else {}))


def start(name: str = "f", id: str = "call_1") -> Piece:
    return Piece("tool_start", call=ToolCall(id, name, {}))


def arguments(value: str) -> Piece:
    return Piece("tool_arguments", value)


@dataclass
class FakeChain:
    """A stored response that is continued."""

    pending: dict[str, str] = field(default_factory=dict)
    outputs: list[dict[str, Any]] = field(default_factory=list)
