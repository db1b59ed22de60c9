"""A model's text for a terminal."""

from __future__ import annotations

_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160))}
_KEPT = {ord("\t"): "\t", ord("\n"): "\n", ord("\r"): ""}


def plain(text: str) -> str:
    """A text without control characters: a terminal would carry its escape sequences out."""
    return text.translate(_CONTROLS | _KEPT)
