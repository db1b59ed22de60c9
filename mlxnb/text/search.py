"""Finding fixed strings in a text that arrives in pieces.

An Aho-Corasick automaton (Aho and Corasick, "Efficient string matching", CACM 18(6), 1975)
read with leftmost-longest semantics: of all matches in the whole text the one that starts
first wins, and of those the longest, however the text was cut into pieces. A text costs time
in its own length, whatever the number and the length of the patterns.

Knows nothing of tags, stops or models.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class _Node:
    """One state: the text read so far ends with a prefix, ``depth`` long, of some pattern."""

    __slots__ = ("children", "depth", "fail", "found", "live")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.children: dict[str, _Node] = {}
        self.fail: _Node = self
        self.found = ""  # the longest pattern that ends here
        self.live = 0  # length of the longest end of the text that could still grow to a match


class Patterns:
    """Strings to look for, compiled once; immutable. Empty strings are left out."""

    __slots__ = ("first", "root")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.root = _Node(0)
        for pattern in patterns:
            self._add(pattern)
        self._link()
        self.first = frozenset(self.root.children)

    def _add(self, pattern: str) -> None:
        node = self.root
        for char in pattern:
            node = node.children.setdefault(char, _Node(node.depth + 1))
        node.found = pattern

    def _link(self) -> None:
        """Breadth first: a node's fail link is its longest proper suffix that is a node."""
        queue = deque([self.root])
        while queue:
            parent = queue.popleft()
            for char, node in parent.children.items():
                node.fail = self._step(parent.fail, char) if parent is not self.root else parent
                node.found = node.found or node.fail.found
                node.live = node.depth if node.children else node.fail.live
                queue.append(node)

    def _step(self, node: _Node, char: str) -> _Node:
        while char not in node.children and node is not self.root:
            node = node.fail
        return node.children.get(char, self.root)


class Search:
    """One search through one text for the first of ``patterns``.

    Feed it pieces; what comes back can no longer be touched by a match. Only the text that
    could still become one is held back. When ``matched`` is set, what was returned ends where
    the match starts and ``rest`` is what was fed beyond its end; ``restart`` before feeding on.
    """

    __slots__ = ("_at", "_found", "_held", "_node", "_patterns", "matched", "rest")

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._node = patterns.root
        self._held = ""
        self._found = ""  # a match that an earlier or a longer one may still replace
        self._at = 0  # where it starts in what is held
        self.matched: str | None = None
        self.rest = ""

    def restart(self, patterns: Patterns) -> None:
        """Begin anew, with these patterns; nothing is held."""
        self._patterns = patterns
        self.matched = None
        self.rest = ""
        self._forget()

    def feed(self, text: str) -> str:
        """Read on; returns the text that is free now, maybe empty."""
        assert self.matched is None, "a search that has matched must be restarted"
        if not self._held and self._patterns.first.isdisjoint(text):
            return text
        return self._walk(text)

    def flush(self) -> str:
        """The text has ended: a match that waited for a longer one is taken, the rest is free."""
        held = self._held
        if self._found:
            return self._take(held)
        self._forget()
        return held

    def _walk(self, text: str) -> str:
        seen = self._held + text
        node, root = self._node, self._patterns.root
        for end, char in enumerate(text, len(self._held) + 1):
            while char not in node.children and node is not root:
                node = node.fail
            node = node.children.get(char, root)
            if node.found:
                self._note(node.found, end - len(node.found))
            if self._found and end - node.live > self._at:
                return self._take(seen)
        free = len(seen) - node.live
        self._node, self._held, self._at = node, seen[free:], self._at - free
        return seen[:free]

    def _note(self, found: str, at: int) -> None:
        """A match; of two the earlier one stays, and of two at one place the longer one."""
        if not self._found or at <= self._at:
            self._found, self._at = found, at

    def _take(self, seen: str) -> str:
        at, found = self._at, self._found
        self._forget()
        self.matched, self.rest = found, seen[at + len(found) :]
        return seen[:at]

    def _forget(self) -> None:
        self._node = self._patterns.root
        self._held = self._found = ""
        self._at = 0
