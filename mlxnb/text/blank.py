"""Blank text that waits for real text."""

from __future__ import annotations


class BlankHold:
    """Holds blank text back until real text follows it, and then lets everything through.

    Blank is what ``str.isspace`` says. Nothing is changed: what was held comes out in front of
    the first real text.
    """

    __slots__ = ("_held", "open")

    def __init__(self) -> None:
        self._held: list[str] = []
        self.open = False

    def feed(self, text: str) -> str:
        """``text`` and what was held before it, or nothing while all of it is blank."""
        if self.open:
            return text
        self._held.append(text)
        if not text or text.isspace():
            return ""
        self.open = True
        return self.flush()

    def flush(self) -> str:
        """What is held, blank as it is."""
        held = "".join(self._held)
        self._held.clear()
        return held

    def drop(self) -> None:
        """Forget what is held, and hold blank text again."""
        self._held.clear()
        self.open = False


def without_blank_lines(text: str) -> str:
    """``text`` without the blank lines it begins with.

    The indentation of its first real line is kept, unless that line is its very first: what
    stands between an end tag and an answer on the same line is no indentation.
    """
    real = text.lstrip()
    blank = text[: len(text) - len(real)]
    return text[blank.rfind("\n") + 1 :] if "\n" in blank else real
