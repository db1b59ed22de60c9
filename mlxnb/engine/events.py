"""What a request tells whoever waits for it: progress, pieces of the answer, the end."""

from __future__ import annotations

from dataclasses import dataclass

from mlxnb.records.turn import FinishReason
from mlxnb.text.answer import Piece

__all__ = ["Done", "Event", "Piece", "Prefill"]


@dataclass(frozen=True, slots=True)
class Prefill:
    """``done`` of ``total`` prompt tokens have their KV; ``cached`` of them were reused."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Done:
    """The end. ``error`` is what went wrong where ``finish_reason`` is error."""

    finish_reason: FinishReason
    error: Exception | None = None


Event = Prefill | Piece | Done
