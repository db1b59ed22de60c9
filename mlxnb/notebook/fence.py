"""The first fenced block of code in a text that comes in pieces."""

from __future__ import annotations

import re

_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")


class FirstFence:
    """Lets through the lines of the first fenced block, as CommonMark delimits it.

    Attributes
    ----------
    found
        A block has begun.
    """

    def __init__(self) -> None:
        self.found = False
        self._line = ""
        self._fence = ""
        self._over = False

    def feed(self, text: str) -> str:
        """The code in this piece; a line is let through when it is whole."""
        if self._over:
            return ""
        *whole, self._line = (self._line + text).split("\n")
        return "".join(self._take(line) for line in whole)

    def _take(self, line: str) -> str:
        if self._over:
            return ""
        if self._fence:
            self._over = self._closes(line)
            return "" if self._over else line + "\n"
        opening = _OPENING.match(line.rstrip())
        if opening is not None:
            self._fence, self.found = opening[1], True
        return ""

    def _closes(self, line: str) -> bool:
        bare = line.strip()
        return len(bare) >= len(self._fence) and set(bare) == {self._fence[0]}

    def finish(self) -> str:
        """The rest, where the text ended inside the block."""
        rest, self._line = self._line, ""
        return self._take(rest) if rest else ""
