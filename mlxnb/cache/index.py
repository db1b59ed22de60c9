"""The prefix index: which runs of tokens have their KV in the pool.

A tree of blocks under one root per (model, salt). A child is found under the very bytes of its
tokens, so a hit is a verified hit. A block shorter than ``BLOCK`` tokens is the tail of what was
filed and has no children; a prompt that leaves a block half-way can still use the part that it
shares with it. Knows nothing of arrays.
"""

from __future__ import annotations

import heapq
import itertools
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from mlxnb.records.tokens import WIDTH, common_prefix

if TYPE_CHECKING:
    from mlxnb.cache.checkpoint import Checkpoint

Slot = tuple[int, int]


@dataclass(slots=True, eq=False)
class Block:
    """A run of tokens with its KV in a slot of the pool; the root has neither.

    ``refs`` counts plans that rely on the block: while it is above 0, or the block is pinned or
    has children, the block stays. ``marks`` are checkpoints after the block and less than a
    block's tokens more, by these tokens.
    """

    id: str
    parent: Block | None
    tokens: bytes
    start: int
    slot: Slot | None
    children: dict[bytes, Block] = field(default_factory=dict)
    order: list[bytes] = field(default_factory=list)
    marks: dict[bytes, Checkpoint] = field(default_factory=dict)
    refs: int = 0
    hits: int = 0
    pinned: bool = False
    last_used: float = 0.0
    stamp: int = 0
    dropped: bool = False

    @property
    def length(self) -> int:
        """Number of tokens in this block."""
        return len(self.tokens) // WIDTH

    @property
    def end(self) -> int:
        """Position after this block's last token."""
        return self.start + self.length

    def branch(self) -> list[Block]:
        """It and all that stand behind it, each after what it stands behind."""
        found = [self]
        for each in found:  # which grows meanwhile
            found.extend(each.children.values())
        return found

    def chain(self) -> list[Block]:
        """The blocks from the root (left out) to this one."""
        blocks: list[Block] = []
        block: Block | None = self
        while block is not None and block.parent is not None:
            blocks.append(block)
            block = block.parent
        return blocks[::-1]


@dataclass(frozen=True, slots=True)
class Match:
    """What a prompt shares with the index: all to ``block``, then ``part`` tokens of ``tail``.

    ``checkpoint`` lies where it ends, if it was to end at one.
    """

    block: Block
    tail: Block | None
    part: int
    checkpoint: Checkpoint | None = None

    @property
    def length(self) -> int:
        """Tokens matched."""
        return self.block.end + self.part

    def blocks(self) -> list[Block]:
        """The blocks that hold the matched tokens, in order."""
        return self.block.chain() + ([self.tail] if self.tail is not None else [])

    def slots(self) -> list[Slot]:
        """The slots that hold the matched tokens, in order."""
        return [block.slot for block in self.blocks() if block.slot is not None]


class PrefixIndex:
    """Blocks by content, and the order in which they may go: leaves first, least recently used.

    Parameters
    ----------
    block
        Tokens in a whole block.
    """

    def __init__(self, block: int) -> None:
        self._width = block * WIDTH
        self._roots: dict[tuple[str, str], Block] = {}
        self._blocks: dict[str, Block] = {}
        self._leaves: list[tuple[int, int, Block]] = []
        self.clock = itertools.count(1)

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(list(self._blocks.values()))

    def get(self, block_id: str) -> Block | None:
        """The block of that id."""
        return self._blocks.get(block_id)

    def root(self, model: str, salt: str) -> Block:
        """The root under which prompts of this model and salt are filed."""
        key = (model, salt)
        if key not in self._roots:
            self._roots[key] = Block(root_id(model, salt), None, b"", 0, None)
        return self._roots[key]

    def match(self, root: Block, prompt: bytes, limit: int, anchored: bool = False) -> Match:
        """The longest prefix of ``prompt`` that is filed, at most ``limit`` tokens.

        ``anchored``: the longest that ends at a checkpoint.
        """
        block, position = root, 0
        last = limit * WIDTH
        while position + self._width <= last:
            child = block.children.get(prompt[position : position + self._width])
            if child is None:
                break
            block, position = child, position + self._width
        tail, part = self._best_child(block, prompt[position : min(position + self._width, last)])
        match = Match(block, tail, part)
        return _anchored(match, prompt[block.end * WIDTH :][: part * WIDTH]) if anchored else match

    @staticmethod
    def _best_child(block: Block, rest: bytes) -> tuple[Block | None, int]:
        """The child that shares most with ``rest``: a neighbour of it in the sorted keys."""
        best, shared = None, 0
        place = bisect_left(block.order, rest)
        for key in block.order[max(0, place - 1) : place + 1]:
            common = common_prefix(key, rest)
            if common > shared:
                best, shared = block.children[key], common
        return best, shared

    def add(self, parent: Block, tokens: bytes, slot: Slot) -> Block:
        """File a block under its parent."""
        assert len(parent.tokens) in (0, self._width), "a short block has no children"
        assert tokens not in parent.children, "a block is filed once"
        name = chained(parent.id, tokens)
        block = Block(name, parent, tokens, parent.end, slot)
        parent.children[tokens] = block
        insort(parent.order, tokens)
        self._blocks[name] = block
        self.touch(block)
        return block

    def touch(self, block: Block) -> None:
        """Mark a block as just used."""
        if block.parent is None:
            return
        block.last_used = time.time()
        block.stamp = next(self.clock)
        self._offer(block)

    def remove(self, block: Block) -> None:
        """Take out a leaf."""
        assert not block.children and block.parent is not None, "only leaves are taken out"
        parent = block.parent
        del parent.children[block.tokens]
        parent.order.pop(bisect_left(parent.order, block.tokens))
        del self._blocks[block.id]
        block.dropped = True
        self._offer(parent)

    def forget(self, model: str) -> None:
        """Take out everything of a model."""
        for key in [key for key in self._roots if key[0] == model]:
            stack = [self._roots.pop(key)]
            while stack:
                block = stack.pop()
                stack.extend(block.children.values())
                block.dropped = True
                self._blocks.pop(block.id, None)
        self._tidy()

    def oldest_leaf(self, frees: Callable[[Block], bool] = lambda block: True) -> Block | None:
        """The leaf that may go first; None when all that is left is in use or pinned.

        One that ``frees`` denies is left where it is.
        """
        kept: list[tuple[int, int, Block]] = []
        found = None
        while self._leaves and found is None:
            entry = heapq.heappop(self._leaves)
            if _is_current(entry):
                kept.append(entry)
                block = entry[2]
                if not (block.refs or block.pinned) and frees(block):
                    found = block
        for entry in kept:
            heapq.heappush(self._leaves, entry)
        return found

    def _offer(self, block: Block) -> None:
        """Queue a leaf for eviction; entries that are out of date are skipped when popped."""
        if block.parent is not None and not block.children and not block.dropped:
            heapq.heappush(self._leaves, (block.stamp, id(block), block))
            if len(self._leaves) > 64 + 4 * len(self._blocks):
                self._tidy()

    def _tidy(self) -> None:
        """Drop entries that are out of date or there twice."""
        current = {entry[:2]: entry for entry in self._leaves if _is_current(entry)}
        self._leaves = list(current.values())
        heapq.heapify(self._leaves)


def _is_current(entry: tuple[int, int, Block]) -> bool:
    stamp, _, block = entry
    return not block.dropped and not block.children and stamp == block.stamp


def root_id(model: str, salt: str) -> str:
    """The id of the root under which prompts of a model and salt are filed."""
    return blake2b(f"{model}\0{salt}".encode(), digest_size=16).hexdigest()


def chained(parent: str, tokens: bytes) -> str:
    """The id of what follows ``parent``."""
    return blake2b(bytes.fromhex(parent) + tokens, digest_size=16).hexdigest()


def _anchored(match: Match, rest: bytes) -> Match:
    """The part of a match up to the deepest checkpoint in it; ``rest`` is what ``tail`` shares."""
    node, tail = match.block, match.tail
    while True:
        key = max((key for key in node.marks if rest.startswith(key)), key=len, default=None)
        if key is not None:
            return Match(node, tail if key else None, len(key) // WIDTH, node.marks[key])
        if node.parent is None:
            return Match(node, None, 0)
        node, tail, rest = node.parent, node, node.tokens
