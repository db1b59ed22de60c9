"""Server-sent events as bytes."""

from __future__ import annotations

import json
from typing import Any

# Line ends to Python's str.splitlines, by which httpx and others cut a stream; to JSON they are
# text like any other, and json.dumps escapes the rest of them.
_ESCAPES = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def encode(name: str, payload: Any) -> bytes:
    """One event with its ``event:`` and ``data:`` lines."""
    return f"event: {name}\n".encode() + unnamed(payload)


def unnamed(payload: Any) -> bytes:
    """One event that has its ``data:`` line alone."""
    data = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f"data: {data.translate(_ESCAPES)}\n\n".encode()
