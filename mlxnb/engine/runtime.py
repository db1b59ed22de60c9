"""A loaded model as the engine sees it, and the rate at which it was measured to prefill."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlxnb.engine.activations import Activations
from mlxnb.models.info import ModelInfo, Reuse

CHUNK_S = 0.5
"""A prefill chunk is sized to take at most this long, in seconds."""
SMALLEST, LARGEST = 8, 2048


@dataclass(slots=True)
class Rate:
    """Prefill rate in tokens a second, measured chunk by chunk; the newest weigh most.

    ``most``: tokens of a chunk that the device has memory for now.
    """

    tokens: int = 0
    seconds: float = 0.0
    largest: int = 0
    most: int = LARGEST
    _recent_tokens: float = 0.0
    _recent_seconds: float = 0.0

    def note(self, tokens: int, seconds: float) -> None:
        """Count a chunk."""
        self.tokens += tokens
        self.seconds += seconds
        self.largest = max(self.largest, tokens)
        self._recent_tokens = 0.5 * self._recent_tokens + tokens
        self._recent_seconds = 0.5 * self._recent_seconds + max(seconds, 1e-9)

    @property
    def mean(self) -> float | None:
        """Tokens a second over this process; None before the first chunk."""
        return self.tokens / self.seconds if self.seconds > 0 else None

    @property
    def chunk(self) -> int:
        """Tokens for the next chunk: 0.8 of what would fit, four times the largest at most."""
        if not self.largest:
            return min(SMALLEST, self.most)
        fitting = int(0.8 * CHUNK_S * self._recent_tokens / self._recent_seconds)
        return min(self.most, max(SMALLEST, min(fitting, 4 * self.largest, LARGEST)))


@dataclass(slots=True, eq=False)
class Runtime:
    """A loaded model. ``key`` names its KV: content fingerprint and adapter.

    ``layers`` is the number of its layers, ``end_tokens`` what ends an answer. ``reuse``: whether
    any prefix of its KV can be reused, or what ends at a checkpoint, or nothing. ``paged``: it
    attends to the block pool in place. ``activations``: what a chunk takes; None: nobody knows.
    """

    info: ModelInfo
    model: Any
    tokenizer: Any
    key: str
    vocab: int
    layers: int
    end_tokens: frozenset[int]
    reuse: Reuse
    batchable: bool
    paged: bool = False
    rate: Rate = field(default_factory=Rate)
    activations: Activations | None = None

    @property
    def rewindable(self) -> bool:
        """Whether reuse may end at any token."""
        return self.reuse == "prefix"

    @property
    def sized(self) -> bool:
        """Whether it is known beforehand how many bytes a sequence takes."""
        return self.reuse != "none"
