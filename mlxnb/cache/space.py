"""One model's part of the prefix cache: its pool, its live caches, its blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.cache.checkpoint import Checkpoint, take
from mlxnb.cache.index import Block, Match, PrefixIndex, Slot
from mlxnb.cache.layout import Layout
from mlxnb.cache.live import Live
from mlxnb.cache.plan import Plan
from mlxnb.cache.pool import BLOCK, SLAB, BlockPool, Run
from mlxnb.cache.snapshots import Snapshots
from mlxnb.records.tokens import WIDTH

TakeSlots = Callable[[int], list[Slot]]
"""Give up to so many slots of the pool."""


@dataclass(slots=True)
class Space:
    """Blocks and live caches of one model; ``blocks`` says which block lies in which slot.

    ``layout`` is None where nothing of the model's caches can be reused: it files nothing then.
    ``users`` are the loaded models whose KV this is, by name; ``rate`` says how many tokens a
    second they were measured to compute.
    """

    key: str
    index: PrefixIndex
    pool: BlockPool
    snapshots: Snapshots
    layout: Layout | None
    rate: Callable[[], float | None] = lambda: None
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
    def reusable(self) -> bool:
        """Whether prefixes of this model's KV can be reused."""
        return self.layout is not None

    @property
    def anchored(self) -> bool:
        """Whether reuse begins at checkpoints alone."""
        return self.layout is not None and self.layout.anchored

    @property
    def reach(self) -> int:
        """How many of the last tokens windows need."""
        return self.layout.reach if self.layout is not None else 0

    @property
    def paged(self) -> bool:
        """Whether live caches are tables of the pool's blocks."""
        return False

    def hot(self) -> list[Live]:
        """Hot caches that nothing keeps, the least recently used first."""
        free = [h for h in self.lives if h.idle and not (h.pins or h.pinned)]
        free = [h for h in free if not any(c.pinned for c in h.checkpoints)]
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
        """Whether a block may be taken out of the index, and that frees memory."""
        return bool(self.pool.slab_bytes) and not any(c.used for c in needing(block))

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
        if match.length < length and self.reusable:
            end = self._carve(live, match.block, tokens, take)
        else:
            end = match.length
        self._mark(live, tokens, end)
        self.tidy(live.root, tokens[: end * WIDTH])
        return end

    def _carve(self, live: Live, after: Block, tokens: bytes, take: TakeSlots) -> int:
        """File what comes after a block; returns up to where."""
        start = after.end
        live.guards += 1
        try:
            end = self._put(
                after,
                pieces_of(tokens[start * WIDTH :]),
                lambda count: mlxlm.read(live.kv(), start, start + count),
                take,
            )
        finally:
            live.guards -= 1
        self.copied_bytes += (end - start) * self.pool.token_bytes
        return end

    def _mark(self, live: Live, tokens: bytes, end: int) -> None:
        """File a live cache's checkpoints among the first ``end`` tokens."""
        for checkpoint in [c for c in live.checkpoints if c.position <= end]:
            self.mark(live.root, tokens, checkpoint)

    def mark(self, root: Block, tokens: bytes, checkpoint: Checkpoint) -> None:
        """File a checkpoint of a sequence whose KV is filed up to there."""
        whole = checkpoint.position - checkpoint.position % BLOCK
        node = self.index.match(root, tokens, whole).block
        key = tokens[whole * WIDTH : checkpoint.position * WIDTH]
        if node.end != whole or key in node.marks:
            self.snapshots.drop(checkpoint)
            return
        if checkpoint.live is not None:
            checkpoint.live.checkpoints.remove(checkpoint)
        checkpoint.live, checkpoint.node, checkpoint.key = None, node, key
        node.marks[key] = checkpoint

    def file(self, after: Block, pieces: list[bytes], run: Run, take: TakeSlots) -> int:
        """File KV ``(heads, tokens, dim)`` after a block; returns up to where."""
        return self._put(
            after, pieces, lambda count: [(k[:, :count], v[:, :count]) for k, v in run], take
        )

    def _put(
        self, after: Block, pieces: list[bytes], read: Callable[[int], Run], take: TakeSlots
    ) -> int:
        """File pieces after a block, as far as there are slots; returns up to where.

        ``read`` gives the KV of the first so many tokens of them.
        """
        after.refs += 1
        try:
            slots = take(len(pieces))
            pieces = pieces[: len(slots)]
            count = sum(map(len, pieces)) // WIDTH
            if slots:
                self._write(slots, lambda: read(count))
                self._file(after, pieces, slots)
        finally:
            after.refs -= 1
        return after.end + count

    def _write(self, slots: list[Slot], read: Callable[[], Run]) -> None:
        """Write KV into slots just taken, which go back if that fails."""
        try:
            self.pool.write(slots, read())
        except BaseException:
            for slot in slots:
                self.pool.give_back(slot)
            raise

    def _file(self, parent: Block, pieces: list[bytes], slots: list[Slot]) -> None:
        for piece, slot in zip(pieces, slots, strict=True):
            there = parent.children.get(piece)
            if there is not None:  # a hot cache that made way for these slots has left it
                self.pool.give_back(slot)
                parent = there
                continue
            self._drop_shorter(parent, piece)
            parent = self.index.add(parent, piece, slot)
            self.blocks[slot] = parent

    def _drop_shorter(self, parent: Block, piece: bytes) -> None:
        """A tail that the new block begins with is of no more use."""
        for key in [k for k in parent.order if len(k) < len(piece) and piece.startswith(k)]:
            short = parent.children[key]
            if not (short.refs or short.pinned):
                self._take_out(short)

    # --- blocks → live cache ------------------------------------------------------------------

    def open(self, plan: Plan, marks: tuple[int, ...]) -> Live:
        """A live cache for what a plan is for, without arrays so far."""
        live = Live(self.key, plan.root, plan.owner, plan.prompt, anchored=self.anchored)
        live.token_bytes, live.marks = self.pool.token_bytes, marks
        live.fixed_bytes = self.layout.fixed_bytes if self.layout is not None else 0
        return live

    def fresh(self, capacity: int) -> mlxlm.Caches:
        """Caches that hold nothing and have room for ``capacity`` tokens."""
        if not self.reusable:
            return mlxlm.new_caches(self.model)
        run = [_empty(shape, capacity) for shape in self.pool.layers]
        mx.eval(run)
        return mlxlm.from_arrays(self.model, run, 0)

    def load(self, match: Match, capacity: int) -> mlxlm.Caches:
        """Caches with a copy of the tokens of a match."""
        run = self.pool.read(match.slots(), match.length, capacity)
        return self._caches(run, match.length, match.checkpoint)

    def duplicate(self, live: Live, length: int, capacity: int) -> mlxlm.Caches:
        """Caches with a copy of the first ``length`` tokens of a live cache.

        Where it is anchored it is to hold just these, or have a checkpoint there.
        """
        caches = live.kv()
        run: Run = [
            (_padded(keys, capacity), _padded(values, capacity))
            for keys, values in mlxlm.read(caches, 0, length)
        ]
        mx.eval(run)
        checkpoint = live.checkpoint_at(length)
        if self.anchored and checkpoint is None:
            checkpoint = self.checkpoint(live)
        return self._caches(run, length, checkpoint)

    def _caches(self, run: Run, length: int, checkpoint: Checkpoint | None) -> mlxlm.Caches:
        caches = mlxlm.from_arrays(self.model, run, length)
        self.copied_bytes += length * self.pool.token_bytes
        if checkpoint is not None:
            checkpoint.restore(caches)
            self.copied_bytes += checkpoint.states.nbytes
        return caches

    def read(self, live: Live, start: int, end: int) -> Run:
        """Keys and values ``(heads, end - start, dim)`` of a live cache that does not run."""
        assert live.caches is not None
        return mlxlm.read(live.caches, start, end)

    def read_blocks(self, slots: list[Slot], count: int) -> Run:
        """A copy of the first ``count`` tokens in some slots, ``(heads, count, dim)``."""
        return [(keys[0], values[0]) for keys, values in self.pool.read(slots, count, count)]

    def marks(self, root: Block, tokens: bytes) -> list[Checkpoint]:
        """The checkpoints that are filed along a sequence."""
        match = self.index.match(root, tokens, len(tokens) // WIDTH)
        found = []
        for node in (root, *match.block.chain()):
            rest = tokens[node.end * WIDTH :]
            found += [c for key, c in node.marks.items() if rest.startswith(key)]
        return found

    def checkpoint(self, live: Live) -> Checkpoint:
        """A checkpoint of a live cache where it is; whoever wants to keep it counts it in."""
        assert live.caches is not None, "a sequence of a batch is in its caches first"
        return take(self.key, live.caches, live.length, live.trail, self.reach)

    # --- giving up ----------------------------------------------------------------------------

    def drop(self, live: Live) -> None:
        """Forget a live cache; harmless when done twice."""
        if live in self.lives:
            self.lives.remove(live)
        for checkpoint in list(live.checkpoints):
            self.snapshots.drop(checkpoint)
        for plan in list(live.plans):
            plan.lose(self.index)
        live.caches = live.copy = None
        live.reserved = 0

    def failed(self) -> None:
        """A call of the model failed: only its own caches are unsound."""

    def remove(self, block: Block) -> None:
        """Take a leaf out; its slot is free, and checkpoints that need its KV are gone."""
        for checkpoint in needing(block):
            self.snapshots.drop(checkpoint)
        self._take_out(block)

    def _take_out(self, block: Block) -> None:
        assert block.slot is not None, "the root stays"
        self.index.remove(block)
        del self.blocks[block.slot]
        self.pool.give_back(block.slot)

    def forget(self, checkpoint: Checkpoint) -> None:
        """Drop a checkpoint, and blocks without KV that only led there."""
        node = checkpoint.node
        self.snapshots.drop(checkpoint)
        if node is None or self.pool.slab_bytes:
            return
        for child in [node.children[k] for k in node.order if k.startswith(checkpoint.key)]:
            self._prune(child)
        self._prune(node)

    def tidy(self, root: Block, tokens: bytes) -> None:
        """Take out blocks without KV on the way of a sequence that lead to no checkpoint."""
        if not self.pool.slab_bytes:
            there = self.index.match(root, tokens, len(tokens) // WIDTH)
            self._prune(there.tail or there.block)

    def _prune(self, block: Block) -> None:
        while block.parent is not None and not (block.children or block.marks or block.refs):
            if block.dropped or block.pinned or needing(block):
                return
            parent = block.parent
            self._take_out(block)
            block = parent

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


def needing(leaf: Block) -> list[Checkpoint]:
    """The checkpoints that are of no use without a leaf's KV."""
    assert leaf.parent is not None, "the root is no leaf"
    partial = [k for k in leaf.parent.marks if k and leaf.tokens.startswith(k)]
    others = [key for key in leaf.parent.order if key != leaf.tokens]
    alone = [k for k in partial if not any(other.startswith(k) for other in others)]
    return [*leaf.marks.values(), *(leaf.parent.marks[key] for key in alone)]


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
