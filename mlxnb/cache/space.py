"""One model's part of the prefix cache: its pool, its live caches, its blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.cache.index import Block, PrefixIndex, Slot
from mlxnb.cache.live import Live
from mlxnb.cache.pool import BLOCK, SLAB, BlockPool, Run
from mlxnb.records.tokens import WIDTH

TakeSlots = Callable[[int], list[Slot]]
"""Give up to so many slots of the pool."""


@dataclass(slots=True)
class Space:
    """Blocks and live caches of one model; ``blocks`` says which block lies in which slot.

    A model whose layers cannot be rewound has a pool without layers: it files nothing. ``users``
    are the loaded models whose KV this is, by name.
    """

    key: str
    index: PrefixIndex
    pool: BlockPool
    users: dict[str, Any] = field(default_factory=dict)
    lives: list[Live] = field(default_factory=list)
    blocks: dict[Slot, Block] = field(default_factory=dict)
    copied_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the pool and of live caches."""
        return self.pool.nbytes + sum(live.reserved for live in self.lives)

    @property
    def model(self) -> Any:
        """The model whose KV this is; of several that are equal, any."""
        return next(iter(self.users.values()))

    @property
    def rewindable(self) -> bool:
        """Whether prefixes of this model's KV can be reused."""
        return bool(self.pool.layers)

    @property
    def paged(self) -> bool:
        """Whether live caches are tables of the pool's blocks."""
        return False

    def hot(self) -> list[Live]:
        """Hot caches that nothing keeps, the least recently used first."""
        free = [h for h in self.lives if h.idle and not (h.pins or h.pinned)]
        return sorted(free, key=lambda h: h.stamp)

    def evictable(self) -> int:
        """Bytes that are there for convenience alone: hot caches, and slabs of free blocks."""
        kept: set[int] = set()
        for block in self.blocks.values():
            if block.refs or block.pinned:
                kept.update(id(b) for b in block.chain())
        slabs = self.pool.slabs - -(-len(kept) // SLAB)
        return slabs * self.pool.slab_bytes + sum(hot.reserved for hot in self.hot())

    def frees(self, block: Block) -> bool:
        """Whether taking a block out of the index frees its slot."""
        return True

    def bytes_of(self, live: Live) -> int:
        """Bytes that go when a live cache is dropped."""
        return live.reserved

    # --- live cache → blocks ------------------------------------------------------------------

    def carve(self, live: Live, length: int, take: TakeSlots) -> int:
        """File the first ``length`` tokens of a live cache; returns how many are filed then.

        Only what is not filed yet is copied, as far as ``take`` gives slots.
        """
        tokens = bytes(live.tokens[: length * WIDTH])
        match = self.index.match(live.root, tokens, length)
        if match.length == length or not self.rewindable:
            return match.length
        start = match.block.end
        pieces = pieces_of(tokens[start * WIDTH :])
        match.block.refs += 1
        live.guards += 1
        try:
            slots = take(len(pieces))
            pieces = pieces[: len(slots)]
            end = start + sum(map(len, pieces)) // WIDTH
            if slots:
                self._write(live, start, end, slots)
                self._file(match.block, pieces, slots)
        finally:
            match.block.refs -= 1
            live.guards -= 1
        return end

    def _write(self, live: Live, start: int, end: int, slots: list[Slot]) -> None:
        try:
            caches = live.kv()
            run = [mlxlm.read(caches, n, start, end) for n in range(len(self.pool.layers))]
            self.pool.write(slots, run)
        except BaseException:
            for slot in slots:
                self.pool.give_back(slot)
            raise
        self.copied_bytes += (end - start) * self.pool.token_bytes

    def _file(self, parent: Block, pieces: list[bytes], slots: list[Slot]) -> None:
        for piece, slot in zip(pieces, slots, strict=True):
            self._drop_shorter(parent, piece)
            parent = self.index.add(parent, piece, slot)
            self.blocks[slot] = parent

    def _drop_shorter(self, parent: Block, piece: bytes) -> None:
        """A tail that the new block begins with is of no more use."""
        for key in [k for k in parent.order if len(k) < len(piece) and piece.startswith(k)]:
            short = parent.children[key]
            if not (short.refs or short.pinned):
                self.remove(short)

    # --- blocks → live cache ------------------------------------------------------------------

    def fresh(self, capacity: int) -> mlxlm.Caches:
        """Caches that hold nothing and have room for ``capacity`` tokens."""
        if not self.rewindable:
            return mlxlm.new_caches(self.model)
        run = [_empty(shape, capacity) for shape in self.pool.layers]
        mx.eval(run)
        return mlxlm.from_arrays(self.model, run, 0)

    def load(self, slots: list[Slot], length: int, capacity: int) -> mlxlm.Caches:
        """Caches with a copy of the first ``length`` tokens in ``slots``."""
        self.copied_bytes += length * self.pool.token_bytes
        return mlxlm.from_arrays(self.model, self.pool.read(slots, length, capacity), length)

    def duplicate(self, live: Live, length: int, capacity: int) -> mlxlm.Caches:
        """Caches with a copy of the first ``length`` tokens of a live cache."""
        self.copied_bytes += length * self.pool.token_bytes
        caches = live.kv()
        run: Run = []
        for number in range(len(self.pool.layers)):
            keys, values = mlxlm.read(caches, number, 0, length)
            run.append((_padded(keys, capacity), _padded(values, capacity)))
        mx.eval(run)
        return mlxlm.from_arrays(self.model, run, length)

    # --- giving up ----------------------------------------------------------------------------

    def drop(self, live: Live) -> None:
        """Forget a live cache; harmless when done twice."""
        if live in self.lives:
            self.lives.remove(live)
        for plan in list(live.plans):
            plan.lose(self.index)
        live.caches = live.copy = None
        live.reserved = 0

    def failed(self) -> None:
        """A call of the model failed: only its own caches are unsound."""

    def remove(self, block: Block) -> None:
        """Take a leaf out; its slot is free."""
        assert block.slot is not None, "the root stays"
        self.index.remove(block)
        del self.blocks[block.slot]
        self.pool.give_back(block.slot)

    def compact(self) -> bool:
        """Give a slab's memory back, moving its blocks where there is room; False: none can go."""
        pool = self.pool
        slab = pool.emptiest()
        if slab is None or (pool.free < SLAB and not pool.is_empty(slab)):
            return False
        for row in pool.close(slab):
            block = self.blocks.pop((slab, row))
            target = pool.take()
            pool.move((slab, row), target)
            block.slot, self.blocks[target] = target, block
        pool.drop(slab)
        return True


def pieces_of(tokens: bytes) -> list[bytes]:
    """Packed tokens cut into blocks; the last may be short."""
    width = BLOCK * WIDTH
    return [tokens[at : at + width] for at in range(0, len(tokens), width)]


def _empty(shape: mlxlm.LayerShape, capacity: int) -> tuple[mx.array, mx.array]:
    """Keys and values ``(1, heads, capacity, dim)`` of a layer."""
    keys = mx.zeros((1, shape.heads, capacity, shape.key_dim), shape.dtype)
    return keys, mx.zeros((1, shape.heads, capacity, shape.value_dim), shape.dtype)


def _padded(run: mx.array, capacity: int) -> mx.array:
    """``(heads, tokens, dim)`` as ``(1, heads, capacity, dim)``."""
    return mx.pad(run, [(0, 0), (0, capacity - run.shape[1]), (0, 0)])[None]
