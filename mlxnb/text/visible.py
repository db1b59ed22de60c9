"""The visible part of an answer: what of its text is shown, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence

from mlxnb.text.blank import BlankHold, without_blank_lines
from mlxnb.text.stops import StopMatcher


class VisibleText:
    """Text outside reasoning and tool calls on its way out.

    1. Blank lines that a model writes around its reasoning, before any real text, are cut off.
    2. Stop sequences end the text, until the first tool call.
    3. Blank text before real text, at the beginning and after each tool call, is held: it is
       prefixed to the real text, kept at a stop sequence, and dropped if a tool call or the end
       follows.

    Parameters
    ----------
    stops
        Stop sequences.
    thinks
        The model reasons: 1. applies to it.
    starts_in_reasoning
        What the text begins with stands behind reasoning.
    plain
        Neither reasoning nor tool calls can come: no byte is cut or dropped.
    """

    def __init__(
        self, stops: Sequence[str], *, thinks: bool, starts_in_reasoning: bool, plain: bool
    ) -> None:
        self._plain = plain
        self.matched: str | None = None
        self.cut_at = 0  # where in the raw stream the match starts
        self._leading = thinks  # only blank text so far
        self._trim = starts_in_reasoning
        self._lead = BlankHold()
        self._stops = StopMatcher(stops) if any(stops) else None
        self._blank = BlankHold()
        # Characters that went into and came out of the stops, and for each run of them that
        # stands apart in the raw stream: (characters before it, its place there).
        self._fed = 0
        self._released = 0
        self._marks: list[tuple[int, int]] = []

    @property
    def waiting(self) -> bool:
        """No real text was let go since the beginning or the last call."""
        return not self._blank.open

    def feed(self, text: str, at: int) -> str:
        """Text that can be shown now. ``at`` is the place of ``text`` in the raw stream."""
        if self._leading:
            free = self._lead.feed(text)
            if not free:
                return ""
            self._leading = False
            if self._trim:
                free = without_blank_lines(free)
            at += len(text) - len(free)
            text = free
        if self._stops is None:
            return self._blank.feed(text)
        self._mark(text, at)
        return self._let_go(self._stops.feed(text))

    def skip(self, *, reasoning: bool = False) -> None:
        """Markup was left out of the raw stream here: a reasoning tag, or another."""
        if self._leading:
            self._trim = self._trim or reasoning
            self._lead.drop()

    def before_call(self) -> str:
        """A tool call follows: what of the text it lets go. Stops are not sought any more."""
        text = self._let_go("" if self._stops is None else self._stops.flush())
        if self.matched is None:
            self._stops = None
            self._lead.drop()
            self._blank.drop()
        return text

    def finish(self) -> str:
        """The end follows: what of the text it lets go."""
        text = self._let_go("" if self._stops is None else self._stops.flush())
        return text + self._blank.flush() if self._plain else text

    def _let_go(self, text: str) -> str:
        self._released += len(text)
        free = self._blank.feed(text)
        if self._stops is not None and self._stops.matched is not None:
            self.matched = self._stops.matched
            self.cut_at = self._place(self._released)
            free += self._blank.flush()
        return free

    def _mark(self, text: str, at: int) -> None:
        if not self._marks or self._place(self._fed) != at:
            self._marks.append((self._fed, at))
        self._fed += len(text)
        while len(self._marks) > 1 and self._marks[1][0] <= self._released:
            del self._marks[0]

    def _place(self, offset: int) -> int:
        """The place in the raw stream of the character with ``offset`` ones before it."""
        before, at = next(mark for mark in reversed(self._marks) if mark[0] <= offset)
        return at + offset - before
