"""What an answer's headers say about its cache."""

from __future__ import annotations

from typing import Protocol

from mlxnb.records.turn import CacheStatus


class Planned(Protocol):
    """An answer whose prefix was verified and pinned before anything is sent."""

    @property
    def cache(self) -> CacheStatus:
        """How the prefix was found."""

    @property
    def cached_tokens(self) -> int:
        """How much of the prompt is reused at least."""


def cache_headers(answer: Planned) -> dict[str, str]:
    """``X-Session-Cache``, and ``X-Cached-Tokens`` where there are any; the same on streams."""
    headers: dict[str, str] = {"X-Session-Cache": answer.cache}
    if answer.cached_tokens:
        headers["X-Cached-Tokens"] = str(answer.cached_tokens)
    return headers
