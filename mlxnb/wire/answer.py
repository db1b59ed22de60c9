"""What the protocols need to know of an answer that the service has begun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mlxnb.records.turn import TurnRecord


class Answer(Protocol):
    """An answer, as `mlxnb.sessions` makes it; the numbers are those that hold when it begins."""

    @property
    def response_id(self) -> str:
        """``resp_{host}_{random}``."""

    @property
    def asked_model(self) -> str:
        """The name that the client gave the model."""

    @property
    def created(self) -> int:
        """Seconds since 1970."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the whole prompt."""

    @property
    def cached_tokens(self) -> int:
        """How many of them are reused at least."""

    @property
    def record(self) -> TurnRecord:
        """The turn's row, whole when it has ended."""

    @property
    def tuning(self) -> Mapping[str, float]:
        """What the engine runs with, by name."""

    @property
    def error(self) -> Exception | None:
        """What went wrong."""


class Miss(Protocol):
    """What was reused, against what an earlier answer had left in the cache."""

    @property
    def reason(self) -> str | None:
        """One of `mlxnb.records.diagnosis.REASONS`; ``not_found``: there is no such answer."""

    @property
    def tokens_lost(self) -> int:
        """Prompt tokens that were computed and could have been reused."""

    @property
    def common_tokens(self) -> int:
        """How many tokens both prompts begin with."""
