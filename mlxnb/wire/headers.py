"""What a request's headers ask for beside its body, and what an answer's say about its cache."""

from __future__ import annotations

from typing import Any, Protocol

from mlxnb.records.turn import CacheStatus
from mlxnb.wire.errors import invalid

TIMINGS = "X-Mlxnb-Timings"
"""``false``: `usage` has the vendor's fields alone, for clients that cannot add to the body."""


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


def with_timings(body: dict[str, Any], header: str | None) -> dict[str, Any]:
    """A body that asks for what the header asks for; its own field is stronger.

    Raises
    ------
    WireError
        400: the header is neither ``true`` nor ``false``.
    """
    if header is None:
        return body
    wanted = {"true": True, "false": False}.get(header.strip().lower())
    if wanted is None:
        raise invalid(f"{TIMINGS} is true or false, not {header!r}")
    return {"timings": wanted} | body
