"""A loaded model as the engine sees it, and the rate at which it was measured to prefill."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlxnb.models.info import ModelInfo

CHUNK_S = 0.5
"""A prefill chunk is sized to take at most this long, in seconds."""
SMALLEST, LARGEST = 8, 2048


@dataclass(slots=True)
class Rate:
    """Prefill rate in tokens a second, measured chunk by chunk; the newest weigh most."""

    tokens: int = 0
    seconds: float = 0.0
    recent: float | None = None
    last: int = SMALLEST

    def note(self, tokens: int, seconds: float) -> None:
        """Count a chunk."""
        self.tokens += tokens
        self.seconds += seconds
        rate = tokens / max(seconds, 1e-9)
        self.recent = rate if self.recent is None else 0.5 * (self.recent + rate)
        self.last = tokens

    @property
    def mean(self) -> float | None:
        """Tokens a second over this process; None before the first chunk."""
        return self.tokens / self.seconds if self.seconds > 0 else None

    @property
    def chunk(self) -> int:
        """Tokens for the next chunk: growing fourfold at most, 0.8 of what would fit."""
        if self.recent is None:
            return SMALLEST
        fitting = int(0.8 * CHUNK_S * self.recent)
        return max(SMALLEST, min(fitting, 4 * self.last, LARGEST))


@dataclass(slots=True, eq=False)
class Runtime:
    """A loaded model. ``key`` names its KV: content fingerprint and adapter."""

    info: ModelInfo
    model: Any
    tokenizer: Any
    key: str
    vocab: int
    end_tokens: frozenset[int]
    rewindable: bool
    batchable: bool
    rate: Rate = field(default_factory=Rate)
