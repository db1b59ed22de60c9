"""How much a model is to reason, by the vendors' names for it."""

from __future__ import annotations

BUDGETS: dict[str, int | None] = {
    "minimal": 256,
    "low": 1024,
    "medium": 4096,
    "high": None,
    "xhigh": None,
    "max": None,
}
"""Tokens of reasoning at most; None: no bound. ``none`` switches it off instead."""
