"""Requests for the title of a conversation, which a client shows in a list (W50)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST = 128
"""Tokens that a title may take."""

_ASKS = ("title", "concise", "json")


def asks_for_title(system: str | None, schema: Mapping[str, Any] | None, tools: bool) -> bool:
    """Whether a request wants a title and nothing else.

    It has no tools, its schema requires a string ``title``, and its system text asks for a
    concise title as JSON.
    """
    if tools or schema is None or system is None:
        return False
    properties, required = schema.get("properties"), schema.get("required")
    title = properties.get("title") if isinstance(properties, Mapping) else None
    is_text = isinstance(title, Mapping) and title.get("type") == "string"
    is_required = isinstance(required, list) and "title" in required
    return is_text and is_required and all(word in system.lower() for word in _ASKS)
