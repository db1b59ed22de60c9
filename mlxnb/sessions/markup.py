"""Text that came from outside, kept from turning into a model's special tokens.

A user may write ``<|im_end|>`` or ``<think>``; encoded as it stands that would end their message
or open a thought. So a mark is put into each such string before the template is rendered, and the
text on both sides of it is encoded apart: the same characters, and no special token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_MARKS = [chr(code) for code in range(0xF8F0, 0xF8F8)]
"""Private-use characters, one of which no text of a conversation holds."""


class Markup:
    """A tokenizer's special strings.

    Parameters
    ----------
    tokenizer
        A transformers tokenizer, or mlx-lm's wrapper of one.
    """

    def __init__(self, tokenizer: Any) -> None:
        added = getattr(tokenizer, "added_tokens_decoder", {}).values()
        strings = sorted({t.content for t in added if _is_markup(t)}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, strings))) if strings else None

    def guard(self, value: Any, mark: str) -> Any:
        """The value with ``mark`` put into every special string of it; a mapping's keys stay."""
        if isinstance(value, str):
            return self._guard_text(value, mark)
        if isinstance(value, list | tuple):
            return [self.guard(item, mark) for item in value]
        if isinstance(value, dict):
            return {key: self.guard(item, mark) for key, item in value.items()}
        return value

    def _guard_text(self, text: str, mark: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: found[0][0] + mark + found[0][1:], text)


def _is_markup(token: Any) -> bool:
    """Control tokens, and tags; runs of spaces that some vocabularies add are plain text."""
    text = token.content
    tag = text[:1] in "<[" and text[-1:] in ">]"
    return len(text) > 1 and not text.isspace() and (token.special or tag)


def choose_mark(value: Any) -> str:
    """A character that is nowhere in the value."""
    text = repr(value)
    return next((mark for mark in _MARKS if mark not in text and repr(mark)[1:-1] not in text), "\ue000")


def encode_marked(text: str, mark: str, encode: Callable[[str], list[int]]) -> list[int]:
    """Token ids of a rendered text, its marks left out."""
    return [token for piece in text.split(mark) if piece for token in encode(piece)]
