"""What a session has had computed, so that it can be deleted with it."""

from __future__ import annotations

from collections.abc import Iterator

from mlxnb.engine.request import Request
from mlxnb.records.tokens import common_prefix, pack

LINES = 1000
"""How many conversations of one session are known: after each `reset` or `rewind` there is one
more."""


class Computed:
    """Lines of tokens, packed, with the content of the model that each was fed to.

    A line that another one goes on with is not kept apart. Any thread; one at a time adds.
    """

    def __init__(self) -> None:
        self._lines: list[tuple[str, bytes]] = []

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return iter(self._lines)

    def add(self, request: Request) -> None:
        """Take note of the tokens of a request that has ended."""
        if request.reuse:
            self.add_line(request.record.fingerprint, pack(request.tokens))

    def add_line(self, key: str, line: bytes) -> None:
        """Take note of tokens that were fed to the model of that content."""
        there = [
            (other, tokens)
            for other, tokens in self._lines
            if other != key or not line.startswith(tokens)
        ]
        if not any(other == key and tokens.startswith(line) for other, tokens in there):
            there.append((key, line))
        self._lines = there[-LINES:]

    def shared(self, key: str, line: bytes) -> int:
        """How many tokens a line of another session has in common with any of these."""
        return max((common_prefix(tokens, line) for own, tokens in self if own == key), default=0)
