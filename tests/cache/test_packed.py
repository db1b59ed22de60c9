"""KV and checkpoints as bytes: what goes in comes out, and anything else is refused."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from parity.families import FAMILIES

from mlxnb import mlxlm
from mlxnb.cache import packed
from mlxnb.cache.checkpoint import Checkpoint, take
from mlxnb.cache.layout import Layout
from mlxnb.cache.packed import pack_blocks, pack_checkpoint, unpack_blocks, unpack_checkpoint
from mlxnb.cache.paged_pool import PagedPool
from mlxnb.cache.pool import BLOCK, BlockPool, Run
from mlxnb.mlxlm import LayerShape

DTYPES = [mx.float32, mx.float16, mx.bfloat16, mx.uint32]
SHAPES = {
    "one": [(2, 4, 4)],
    "alike": [(2, 4, 4)] * 3,
    "keys and values of other widths": [(1, 8, 4)],
    "in turns": [(2, 4, 4), (1, 8, 4), (2, 4, 4), (1, 8, 4)],
    "one head of one number": [(1, 1, 1)],
    "odd": [(3, 5, 7), (1, 3, 1)],
}
REFUSED = (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error)
"""With what bytes are refused that hold no checkpoint."""


def pool_of(shapes: list[tuple[int, int, int]], *dtypes: mx.Dtype) -> BlockPool:
    """Layers of these shapes, of these dtypes in turns."""
    return BlockPool([LayerShape(*s, dtypes[n % len(dtypes)]) for n, s in enumerate(shapes)])


def any_run(pool: BlockPool, tokens: int, seed: int = 0) -> Run:
    """KV of any bits at all, numbers that are none among them."""
    rng = np.random.default_rng(seed)

    def some(heads: int, dim: int, dtype: mx.Dtype) -> mx.array:
        bits = rng.integers(0, 256, heads * tokens * dim * dtype.size, np.uint8)
        return mx.array(bits).view(dtype).reshape(heads, tokens, dim)

    return [
        (some(s.heads, s.key_dim, s.dtype), some(s.heads, s.value_dim, s.dtype))
        for s in pool.layers
    ]


def bits(array: mx.array) -> bytes:
    flat = mx.contiguous(array).reshape(-1).view(mx.uint8)
    return np.asarray(flat).tobytes()


def assert_same(run: Run, wanted: Run, start: int = 0, end: int | None = None) -> None:
    """Bit for bit, in shape and in dtype, from token ``start`` of what is wanted on."""
    assert len(run) == len(wanted)
    for pair, wanted_pair in zip(run, wanted, strict=True):
        for array, whole in zip(pair, wanted_pair, strict=True):
            part = whole[:, start:end]
            assert (array.dtype, array.shape[::2]) == (part.dtype, part.shape[::2])
            assert bits(array[:, : part.shape[1]]) == bits(part)


# --- blocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 32, 75])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_a_run_comes_back_bit_for_bit(
    shapes: list[tuple[int, int, int]], dtype: mx.Dtype, tokens: int
) -> None:
    pool = pool_of(shapes, dtype)
    run = any_run(pool, tokens)
    payloads = pack_blocks(pool, run)
    assert [block.nbytes for block in payloads] == [pool.token_bytes * BLOCK] * -(-tokens // BLOCK)
    again = unpack_blocks(pool, payloads)
    assert {array.shape[1] for pair in again for array in pair} == {len(payloads) * BLOCK}
    assert_same(again, run)


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_layers_of_several_dtypes(shapes: list[tuple[int, int, int]]) -> None:
    """As quantized KV has them: packed values, scales and biases."""
    pool = pool_of(shapes * 3, mx.uint32, mx.float32, mx.float16)
    run = any_run(pool, 50)
    assert_same(unpack_blocks(pool, pack_blocks(pool, run)), run)


def test_any_block_can_be_read_by_itself() -> None:
    pool = pool_of(SHAPES["in turns"], mx.float16)
    run = any_run(pool, 60)
    for number, block in enumerate(pack_blocks(pool, run)):
        start = number * BLOCK
        assert_same(unpack_blocks(pool, [block]), run, start, min(60, start + BLOCK))


def test_a_block_is_the_same_bytes_wherever_it_was_cut_from() -> None:
    """So that what two conversations share is written once."""
    pool = pool_of(SHAPES["odd"], mx.bfloat16)
    run = any_run(pool, 64)
    whole = [bytes(block) for block in pack_blocks(pool, run)]
    later = [(keys[:, 32:], values[:, 32:]) for keys, values in run]
    assert [bytes(block) for block in pack_blocks(pool, later)] == whole[2:]


def test_what_it_is_packed_from_may_change_afterwards() -> None:
    pool = pool_of(SHAPES["one"], mx.float32)
    run = any_run(pool, 16)
    kept = [(mx.array(keys), mx.array(values)) for keys, values in run]
    (block,) = pack_blocks(pool, run)
    for keys, values in run:
        keys[:] = 0
        values[:] = 0
        mx.eval(keys, values)
    assert_same(unpack_blocks(pool, [block]), kept)


@pytest.mark.parametrize("kind", [BlockPool, PagedPool])
def test_what_a_pool_holds_comes_back_to_a_pool(kind: Callable[..., BlockPool]) -> None:
    layers = pool_of(SHAPES["in turns"], mx.float32).layers
    pool, other = kind(layers), kind(layers)
    run = any_run(pool, 40)
    for each in (pool, other):
        each.grow()
    slots = [pool.take() for _ in range(3)]
    pool.write(slots, run)
    read = [(keys[0], values[0]) for keys, values in pool.read(slots, 40, 40)]
    places = [other.take() for _ in range(3)]
    other.write(places, unpack_blocks(other, pack_blocks(pool, read)))
    again = [(keys[0], values[0]) for keys, values in other.read(places, 40, 40)]
    assert_same(again, run)


def test_nothing_is_nothing() -> None:
    """Of a model without KV, and of no tokens."""
    pool = pool_of(SHAPES["one"], mx.float32)
    assert pack_blocks(BlockPool([]), []) == []
    assert unpack_blocks(pool, []) == []
    assert unpack_blocks(BlockPool([]), [b"", b""]) == []


@pytest.mark.parametrize("wrong", [b"", bytes(1), bytes(1023), bytes(1025), bytes(2048)])
def test_bytes_of_another_size_are_refused(wrong: bytes) -> None:
    pool = pool_of(SHAPES["one"], mx.float32)
    (block,) = pack_blocks(pool, any_run(pool, 16))
    assert block.nbytes == 1024
    for payloads in ([wrong], [block, wrong], [wrong, block]):
        with pytest.raises(ValueError, match="another size"):
            unpack_blocks(pool, payloads)


# --- checkpoints ------------------------------------------------------------------------------

STATEFUL = [
    "gemma3_text",
    "gpt_oss",
    "llama4",
    "lfm2",
    "qwen3_next",
    "mamba2",
    "rwkv7",
    "falcon_h1",
]
TOKENS = [3 + (n * n * 7 + n * 31) % 290 for n in range(70)]


class Fed:
    """A tiny model that has taken in 50 tokens, with a checkpoint there.

    ``before``: it shares stretches of its windows with one that was taken there.
    """

    def __init__(self, family: str, before: int | None = None) -> None:
        self.model = FAMILIES[family].model()
        self.caches = mlxlm.new_caches(self.model)
        self.length = 0
        stretches: Any = ()
        for end in (10, 45, 50):
            self.feed(TOKENS[self.length : end])
            if end == before:
                stretches = self.taken().stretches
        self.layout = Layout.of(self.caches)
        self.checkpoint = self.taken(stretches)

    def feed(self, tokens: list[int]) -> None:
        self.model(mx.array([tokens]), cache=self.caches)
        mlxlm.evaluate(self.caches)
        self.length += len(tokens)

    def taken(self, before: Any = ()) -> Checkpoint:
        reach = mlxlm.reach(self.caches)
        return take("space", self.caches, self.length, before, reach)

    def packed(self) -> bytes:
        return pack_checkpoint(self.checkpoint, mlxlm.new_caches(self.model))

    def after(self, checkpoint: Checkpoint) -> np.ndarray[Any, Any]:
        """Logits of what comes next, from a checkpoint and the keys that are kept."""
        run = [
            (mx.contiguous(keys[None]), mx.contiguous(values[None]))
            for keys, values in mlxlm.read(self.caches, 0, self.length)
        ]
        caches = mlxlm.from_arrays(self.model, run, self.length)
        checkpoint.restore(caches)
        return np.array(self.model(mx.array([TOKENS[self.length :]]), cache=caches))


@pytest.mark.parametrize("before", [None, 45, 10])
@pytest.mark.parametrize("family", STATEFUL)
def test_a_checkpoint_comes_back_bit_for_bit(family: str, before: int | None) -> None:
    """C9, C13: its windows in one piece, or in several that it shares with one before."""
    run = Fed(family, before=before)
    again = unpack_checkpoint("other", run.packed(), run.layout.reach)
    assert (again.space, again.position, again.kind) == ("other", 50, run.checkpoint.kind)
    assert again.start == max(0, 50 - run.layout.reach)
    assert again.states.forms == run.checkpoint.states.forms
    for one, other in zip(again.states.stacks, run.checkpoint.states.stacks, strict=True):
        assert (one.dtype, one.shape, bits(one)) == (other.dtype, other.shape, bits(other))
    logits = run.after(again)
    assert np.isfinite(logits).all()
    assert np.array_equal(logits, run.after(run.checkpoint))


@pytest.mark.parametrize("family", STATEFUL)
def test_what_was_packed_does_not_depend_on_how_it_was_taken(family: str) -> None:
    assert len({Fed(family, before=before).packed() for before in (None, 45, 10)}) == 1


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("family", ["mamba2", "lfm2", "qwen3_5", "gemma3_text"])
def test_its_dtypes_are_kept(family: str, dtype: mx.Dtype) -> None:
    """C13: some states are float32 in any model, all else is as the model is."""
    run = Fed(family)
    run.model.set_dtype(dtype)
    run.caches, run.length = mlxlm.new_caches(run.model), 0
    run.feed(TOKENS[:50])
    taken = run.taken()
    again = unpack_checkpoint("", pack_checkpoint(taken, mlxlm.new_caches(run.model)), 24)
    kinds = [stack.dtype for stack in taken.states.stacks]
    assert [stack.dtype for stack in again.states.stacks] == kinds
    caches = mlxlm.new_caches(run.model)
    again.restore(caches)
    for cell, wanted in zip(mlxlm.cells(caches), mlxlm.cells(run.caches), strict=True):
        if mlxlm.kind_of(cell) in ("state", "window"):
            assert dtypes_of(cell.state) == dtypes_of(wanted.state)
    if family != "gemma3_text":
        assert dtype in kinds


def dtypes_of(state: Any) -> Any:
    if isinstance(state, list | tuple):
        return [dtypes_of(part) for part in state]
    return state.dtype if isinstance(state, mx.array) else None


@pytest.mark.parametrize("family", ["gemma3_text", "mamba2"])
def test_a_checkpoint_that_is_cut_off_is_refused(family: str) -> None:
    run = Fed(family)
    whole = run.packed()
    for length in [*range(0, 600, 13), *range(600, len(whole), 1999), len(whole) - 1]:
        with pytest.raises(REFUSED):
            unpack_checkpoint("", whole[:length], run.layout.reach)


@pytest.mark.parametrize("family", ["gemma3_text", "mamba2"])
def test_whatever_stands_in_a_header_it_is_a_checkpoint_or_refused(family: str) -> None:
    run, rng = Fed(family), random.Random(family)
    whole = run.packed()
    (size,) = packed._LENGTH.unpack_from(whole)
    refused = 0
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(4 + size)] = rng.randrange(256)
        try:
            unpack_checkpoint("", bytes(damaged), run.layout.reach)
        except REFUSED:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    "change",
    [
        {"arrays": [["float31", [2]]]},
        {"arrays": [["load", [2]]]},
        {"arrays": [["float32", [2**60]]]},
        {"arrays": [["float32", [-1]]]},
        {"arrays": [["float32", ["2"]]]},
        {"arrays": None},
        {"stacks": "many"},
        {"stacks": None},
        {"position": None},
        {"forms": [{"array": [0, "first"]}]},
        {"forms": [{"set": []}]},
        {"members": [[0], [1], [2], [3], [4]]},
        {"members": 3},
    ],
    ids=str,
)
def test_a_header_of_something_else_is_refused(change: dict[str, Any]) -> None:
    run = Fed("gemma3_text")
    whole = run.packed()
    (size,) = packed._LENGTH.unpack_from(whole)
    header = json.loads(whole[4 : 4 + size]) | change
    text = json.dumps(header).encode()
    with pytest.raises(REFUSED):
        unpack_checkpoint("", packed._LENGTH.pack(len(text)) + text + whole[4 + size :], 24)
