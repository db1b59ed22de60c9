"""The prefix index against what anybody would write: a set of token tuples."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from mlxnb.cache.index import Block, Match, PrefixIndex
from mlxnb.cache.plan import make_plan
from mlxnb.cache.pool import BLOCK
from mlxnb.records.tokens import WIDTH, pack, unpack

SIZE = 4
"""Tokens in a block of these tests."""


def file(index: PrefixIndex, root: Block, tokens: list[int], size: int = SIZE) -> list[Block]:
    """File tokens block by block, as carving a live cache does; returns the chain."""
    block, packed = root, pack(tokens)
    chain = []
    for at in range(0, len(packed), size * WIDTH):
        piece = packed[at : at + size * WIDTH]
        block = block.children.get(piece) or index.add(block, piece, (0, len(index)))
        chain.append(block)
    return chain


def match(index: PrefixIndex, root: Block, tokens: list[int], limit: int | None = None) -> Match:
    return index.match(root, pack(tokens), len(tokens) if limit is None else limit)


@pytest.fixture
def index() -> PrefixIndex:
    return PrefixIndex(SIZE)


@pytest.fixture
def root(index: PrefixIndex) -> Block:
    return index.root("model", "")


# --- matching ---------------------------------------------------------------------------------


def test_nothing_is_found_in_an_empty_index(index: PrefixIndex, root: Block) -> None:
    found = match(index, root, [1, 2, 3, 4, 5])
    assert (found.block, found.tail, found.length) == (root, None, 0)


def test_whole_blocks_are_found(index: PrefixIndex, root: Block) -> None:
    chain = file(index, root, [1, 2, 3, 4, 5, 6, 7, 8])
    found = match(index, root, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert (found.block, found.tail, found.length) == (chain[1], None, 8)


def test_a_short_block_is_found_to_the_token(index: PrefixIndex, root: Block) -> None:
    chain = file(index, root, [1, 2, 3, 4, 5, 6])
    found = match(index, root, [1, 2, 3, 4, 5, 6, 7])
    assert (found.block, found.tail, found.part, found.length) == (chain[0], chain[1], 2, 6)


def test_a_part_of_a_whole_block_is_found(index: PrefixIndex, root: Block) -> None:
    chain = file(index, root, [1, 2, 3, 4, 5, 6, 7, 8])
    found = match(index, root, [1, 2, 3, 4, 5, 6, 9, 9])
    assert (found.block, found.tail, found.part) == (chain[0], chain[1], 2)


def test_the_limit_is_not_passed(index: PrefixIndex, root: Block) -> None:
    file(index, root, [1, 2, 3, 4, 5, 6, 7, 8])
    assert [match(index, root, [1, 2, 3, 4, 5, 6, 7, 8], n).length for n in range(9)] == list(
        range(9)
    )


@pytest.mark.parametrize("prompt", [[5, 5, 5, 1], [5, 5, 6, 0], [5, 5, 4, 255], [5, 5, 5, 5]])
def test_the_best_of_many_children_is_a_neighbour_in_order(
    index: PrefixIndex, root: Block, prompt: list[int]
) -> None:
    others = [[5, 5, 5, 0], [5, 5, 5, 2], [5, 5, 6, 1], [5, 4, 9, 9], [6, 0, 0, 0], [5, 5, 4]]
    for tokens in others:
        file(index, root, tokens)
    best = max(shared(prompt, other) for other in others)
    assert match(index, root, prompt).length == best


def test_salts_and_models_are_apart(index: PrefixIndex, root: Block) -> None:
    file(index, root, [1, 2, 3, 4])
    assert match(index, index.root("model", "salt"), [1, 2, 3, 4]).length == 0
    assert match(index, index.root("other", ""), [1, 2, 3, 4]).length == 0
    assert match(index, index.root("model", ""), [1, 2, 3, 4]).length == 4


def test_equal_tokens_behind_other_tokens_are_another_block(
    index: PrefixIndex, root: Block
) -> None:
    one = file(index, root, [1, 1, 1, 1, 7, 7, 7, 7])[1]
    two = file(index, root, [2, 2, 2, 2, 7, 7, 7, 7])[1]
    assert one.id != two.id
    assert index.get(one.id) is one and index.get(two.id) is two


def test_slots_come_in_order_of_tokens(index: PrefixIndex, root: Block) -> None:
    chain = file(index, root, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert match(index, root, list(range(1, 10))).slots() == [block.slot for block in chain]


# --- what goes first --------------------------------------------------------------------------


def test_leaves_go_before_what_they_follow(index: PrefixIndex, root: Block) -> None:
    chain = file(index, root, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    gone = []
    while (leaf := index.oldest_leaf()) is not None:
        index.remove(leaf)
        gone.append(leaf)
    assert gone == chain[::-1]


def test_the_least_recently_used_leaf_goes_first(index: PrefixIndex, root: Block) -> None:
    (one,), (two,), (three,) = (file(index, root, [n] * SIZE) for n in (1, 2, 3))
    index.touch(one)
    assert index.oldest_leaf() is two
    index.remove(two)
    assert index.oldest_leaf() is three


@pytest.mark.parametrize("keep", ["refs", "pinned"])
def test_what_is_in_use_or_pinned_stays(index: PrefixIndex, root: Block, keep: str) -> None:
    (one,), (two,) = (file(index, root, [n] * SIZE) for n in (1, 2))
    setattr(one, keep, 1)
    assert index.oldest_leaf() is two
    index.remove(two)
    assert index.oldest_leaf() is None
    setattr(one, keep, 0)
    assert index.oldest_leaf() is one


def test_only_leaves_are_taken_out(index: PrefixIndex, root: Block) -> None:
    first, _second = file(index, root, [1, 2, 3, 4, 5])
    with pytest.raises(AssertionError, match="only leaves"):
        index.remove(first)


def test_a_short_block_has_no_children(index: PrefixIndex, root: Block) -> None:
    (short,) = file(index, root, [1, 2])
    with pytest.raises(AssertionError, match="no children"):
        index.add(short, pack([3]), (0, 0))


def test_forgetting_a_model_leaves_the_others(index: PrefixIndex, root: Block) -> None:
    file(index, root, [1, 2, 3, 4, 5])
    file(index, index.root("model", "salt"), [1, 2, 3, 4])
    (other,) = file(index, index.root("other", ""), [1, 2, 3, 4])
    index.forget("model")
    assert list(index) == [other]
    assert index.oldest_leaf() is other
    assert match(index, index.root("model", ""), [1, 2, 3, 4]).length == 0


def test_using_a_block_again_and_again_costs_no_memory(index: PrefixIndex, root: Block) -> None:
    (block,) = file(index, root, [1, 2, 3, 4])
    for _ in range(10_000):
        index.touch(block)
    assert len(index._leaves) < 100


# --- many -------------------------------------------------------------------------------------


def test_a_long_prompt_is_planned_among_ten_thousand_other_blocks() -> None:
    draw = random.Random(1)
    index = PrefixIndex(BLOCK)
    root = index.root("model", "")
    prompt = [draw.randrange(50_000) for _ in range(32_000)]
    cut = 31_337
    file(index, root, prompt[:cut], BLOCK)
    before = len(index)
    while len(index) < before + 10_000:
        shares = draw.randrange(0, cut)
        file(index, root, prompt[:shares] + [50_000 + n for n in range(320)], BLOCK)
    plan = make_plan(index, root, [], pack(prompt), owner=None)
    assert plan.matched == cut
    held = b"".join(block.tokens for block in plan.match.block.chain())
    assert unpack(held) == prompt[: cut // BLOCK * BLOCK]
    assert plan.match.part == cut % BLOCK


# --- any order of things ----------------------------------------------------------------------


def shared(a: list[int] | tuple[int, ...], b: list[int] | tuple[int, ...]) -> int:
    pairs = zip(a, b, strict=False)
    return next((n for n, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


tokens = st.lists(st.integers(0, 1), min_size=1, max_size=3 * SIZE)
places = st.tuples(st.sampled_from(["m1", "m2"]), st.sampled_from(["", "salt"]))
Path = tuple[tuple[str, str], tuple[int, ...]]


class IndexMachine(RuleBasedStateMachine):
    """``naive`` holds every filed block under its place and all tokens up to its end."""

    blocks = Bundle("blocks")

    @initialize()
    def begin(self) -> None:
        self.index = PrefixIndex(SIZE)
        self.naive: dict[Path, Block] = {}
        self.used: list[Path] = []  # oldest first

    @rule(target=blocks, place=places, tokens=tokens)
    def add(self, place: tuple[str, str], tokens: list[int]) -> object:
        chain = file(self.index, self.index.root(*place), tokens)
        added = []
        for number, block in enumerate(chain, start=1):
            path = (place, tuple(tokens[: number * SIZE]))
            if path not in self.naive:
                self.naive[path] = block
                self.used.append(path)
                added.append(block)
        return multiple(*added)

    @rule(block=blocks)
    def touch(self, block: Block) -> None:
        if not block.dropped:
            self.index.touch(block)
            self.used.append(self.used.pop(self.used.index(self.path(block))))

    @rule(block=blocks, pinned=st.booleans())
    def pin(self, block: Block, pinned: bool) -> None:
        block.pinned = pinned

    @rule(block=blocks, by=st.sampled_from([1, -1]))
    def refer(self, block: Block, by: int) -> None:
        block.refs = max(0, block.refs + by)

    @rule(block=consumes(blocks))
    def remove(self, block: Block) -> None:
        if not (block.dropped or block.children):
            path = self.path(block)
            self.index.remove(block)
            self.lose(path)

    @rule()
    def evict(self) -> None:
        leaves = [path for path in self.used if not self.has_children(path)]
        free = [p for p in leaves if not (self.naive[p].refs or self.naive[p].pinned)]
        leaf = self.index.oldest_leaf()
        assert leaf is (self.naive[free[0]] if free else None)
        if leaf is not None:
            self.index.remove(leaf)
            self.lose(free[0])

    @rule(model=st.sampled_from(["m1", "m2"]))
    def forget(self, model: str) -> None:
        self.index.forget(model)
        for path in [path for path in self.naive if path[0][0] == model]:
            self.lose(path)

    @rule(place=places, tokens=tokens, limit=st.integers(0, 3 * SIZE))
    def look(self, place: tuple[str, str], tokens: list[int], limit: int) -> None:
        limit = min(limit, len(tokens))
        found = match(self.index, self.index.root(*place), tokens, limit)
        best = max((shared(p, tokens[:limit]) for at, p in self.naive if at == place), default=0)
        assert found.length == best
        held = b"".join(block.tokens for block in found.block.chain())
        held += found.tail.tokens[: found.part * WIDTH] if found.tail is not None else b""
        assert unpack(held) == tokens[:best]

    @invariant()
    def the_same_blocks_are_there(self) -> None:
        assert {block.id for block in self.index} == {block.id for block in self.naive.values()}
        assert len(self.index) == len(self.naive)

    def path(self, block: Block) -> Path:
        return next(path for path, other in self.naive.items() if other is block)

    def has_children(self, path: Path) -> bool:
        place, tokens = path
        return len(tokens) % SIZE == 0 and any(
            at == place and len(p) > len(tokens) and p[: len(tokens)] == tokens
            for at, p in self.naive
        )

    def lose(self, path: Path) -> None:
        self.naive[path].pinned = False
        self.naive[path].refs = 0
        del self.naive[path]
        self.used.remove(path)


TestAnyOrder = IndexMachine.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40)
