"""The ids under which a conversation's KV lies on disk: a hash chain, as in the index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.index import chained
from mlxnb.cache.pool import BLOCK
from mlxnb.cache.space import pieces_of
from mlxnb.records.tokens import WIDTH

STATE = b"checkpoint"
"""Told apart from a block's tokens by its length."""

Has = Callable[[Iterable[str]], int]
"""How many of the leading ids are on disk; those after the first that is not are not asked for."""


@dataclass(frozen=True, slots=True)
class Links:
    """The ids of a sequence's pieces, from a root on; the last piece may be short."""

    root: str
    tokens: bytes
    ids: list[str]

    @classmethod
    def of(cls, root: str, tokens: bytes) -> Links:
        """Of packed tokens after the root of that id."""
        return cls(root, tokens, list(_ids(root, tokens)))

    @property
    def length(self) -> int:
        """Tokens of all pieces."""
        return len(self.tokens) // WIDTH

    def parent(self, number: int) -> str:
        """The id before piece ``number``; the root's before the first."""
        return self.ids[number - 1] if number else self.root

    def cut(self, length: int) -> Links:
        """The first tokens of it; what is left of the last piece is one by itself."""
        tail = [self.tail(length)] if length % BLOCK else []
        ids = [*self.ids[: length // BLOCK], *tail]
        return Links(self.root, self.tokens[: length * WIDTH], ids)

    def tail(self, length: int) -> str:
        """The id of the short piece in which so many tokens end."""
        return chained(self.parent(length // BLOCK), self._rest(length))

    def state(self, position: int) -> str:
        """The id of a checkpoint."""
        return chained(self.parent(position // BLOCK), STATE + self._rest(position))

    def _rest(self, length: int) -> bytes:
        """What comes after the last whole block."""
        return self.tokens[length // BLOCK * BLOCK * WIDTH : length * WIDTH]

    def entries(self, first: int, payloads: list[memoryview]) -> Iterator[Entry]:
        """What is to be written of the pieces from number ``first`` on."""
        pieces = pieces_of(self.tokens)[first:]
        for number, (piece, data) in enumerate(zip(pieces, payloads, strict=False), first):
            start, parent = number * BLOCK, self.ids[number - 1] if number else None
            end = start + len(piece) // WIDTH
            yield Entry(self.ids[number], parent, "kv", start, end, piece, data)


def _ids(root: str, tokens: bytes) -> Iterator[str]:
    """The ids of the pieces, each made when it is asked for."""
    parent = root
    for piece in pieces_of(tokens):
        parent = chained(parent, piece)
        yield parent


def longest(root: str, prompt: bytes, has: Has) -> Links:
    """As much of a prompt as is on disk: whole blocks, then the longest tail."""
    whole = prompt[: len(prompt) // WIDTH // BLOCK * BLOCK * WIDTH]
    ids: list[str] = []

    def asked() -> Iterator[str]:
        for name in _ids(root, whole):
            ids.append(name)
            yield name

    count = has(asked())
    there = Links(root, prompt[: count * BLOCK * WIDTH], ids[:count])
    rest = prompt[len(there.tokens) :]
    for length in range(min(BLOCK - 1, len(rest) // WIDTH), 0, -1):
        piece = rest[: length * WIDTH]
        name = chained(there.parent(len(there.ids)), piece)
        if has([name]):
            return Links(there.root, there.tokens + piece, [*there.ids, name])
    return there


def deepest_state(links: Links, limit: int, has: Has) -> int:
    """The last position, ``limit`` at most, whose checkpoint is on disk; 0 without any."""
    return next((p for p in range(limit, 0, -1) if has([links.state(p)])), 0)
