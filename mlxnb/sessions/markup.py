"""Text that came from outside, kept from turning into a model's special tokens.

A user may write ``<|im_end|>`` or ``<think>``; encoded as it stands that would end their message
or open a thought. So a mark is put into each such string before the template is rendered, and
the mark's own tokens are left out afterwards: the same characters, and no special token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_LAST, _FIRST = 0x10FFFD, 0xE000
"""Code points that a mark is taken from, downwards: private use comes first."""

_HTML = re.compile(
    r"</?(a|b|blockquote|br|caption|code|dd|div|dl|dt|em|h[1-6]|hr|i|li|ol|p|pre|span|strong|su[bp]"
    r"|table|tbody|td|tfoot|th|thead|tr|ul?)>"
)
"""Elements that some vocabularies have as plain words, which no chat template writes."""


class Markup:
    """A tokenizer's special strings.

    Parameters
    ----------
    tokenizer
        A transformers tokenizer, or mlx-lm's wrapper of one.
    """

    def __init__(self, tokenizer: Any) -> None:
        added = getattr(tokenizer, "added_tokens_decoder", {}).values()
        thinking = (getattr(tokenizer, name, None) for name in ("think_start", "think_end"))
        self._pattern = _pattern({t.content for t in added if _is_markup(t)}.union(thinking))

    def guard(self, value: Any, mark: str) -> Any:
        """The value with ``mark`` put into every special string of it, in keys too."""
        if isinstance(value, str):
            return self._guard_text(value, mark)
        if isinstance(value, list | tuple):
            return [self.guard(item, mark) for item in value]
        if isinstance(value, dict):
            return {self.guard(k, mark): self.guard(v, mark) for k, v in value.items()}
        return value

    def _guard_text(self, text: str, mark: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: found[0] + mark, text)


def _pattern(strings: Iterable[str | None]) -> re.Pattern[str] | None:
    """Finds the first character of each special string, of those that overlap too."""
    rests: dict[str, list[str]] = {}
    for string in sorted(filter(None, strings), key=len, reverse=True):
        rests.setdefault(string[0], []).append(re.escape(string[1:]))
    found = (f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items())
    return re.compile("|".join(found)) if rests else None


def _is_markup(token: Any) -> bool:
    """Control tokens, and tags; runs of spaces and HTML in a vocabulary are plain text."""
    text = token.content
    if len(text) < 2 or text.isspace():
        return False
    tag = text[0] in "<[" and text[-1] in ">]" and not _HTML.fullmatch(text)
    return bool(token.special or tag)


def choose_mark(value: Any) -> str:
    """A character that is nowhere in the value."""
    used = set().union(*_texts(value))
    return next(c for c in map(chr, range(_LAST, _FIRST, -1)) if c not in used)


def _texts(value: Any) -> Iterator[str]:
    """All strings in a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _texts(pair)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
