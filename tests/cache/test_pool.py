"""Blocks in and out of slabs: nothing is lost, nothing is copied that need not be."""

from __future__ import annotations

import random

import mlx.core as mx
import numpy as np
import pytest

from mlxnb.cache.pool import BLOCK, SLAB, BlockPool, Run
from mlxnb.mlxlm import LayerShape

PLAIN = [LayerShape(2, 8, 8, mx.float32)] * 3
MIXED = [
    LayerShape(2, 8, 8, mx.float32),
    LayerShape(4, 16, 12, mx.float32),
    LayerShape(2, 8, 8, mx.float32),
    LayerShape(1, 4, 4, mx.float16),
]


def run_of(layers: list[LayerShape], tokens: int, seed: int = 0) -> Run:
    mx.random.seed(seed)
    return [
        (
            mx.random.normal((s.heads, tokens, s.key_dim)).astype(s.dtype),
            mx.random.normal((s.heads, tokens, s.value_dim)).astype(s.dtype),
        )
        for s in layers
    ]


def taken(pool: BlockPool, blocks: int) -> list[tuple[int, int]]:
    while pool.free < blocks:
        pool.grow()
    return [pool.take() for _ in range(blocks)]


def assert_holds(pool: BlockPool, slots: list[tuple[int, int]], run: Run, tokens: int) -> None:
    """The slots hold the run's first tokens, to the bit."""
    read = pool.read(slots, tokens, tokens)
    for (keys, values), (k, v) in zip(read, run, strict=True):
        assert keys.dtype == k.dtype and values.dtype == v.dtype
        assert mx.array_equal(keys[0], k[:, :tokens])
        assert mx.array_equal(values[0], v[:, :tokens])


@pytest.mark.parametrize("tokens", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, SLAB * BLOCK + 5])
@pytest.mark.parametrize("layers", [PLAIN, MIXED], ids=["plain", "mixed"])
def test_what_is_written_is_read(layers: list[LayerShape], tokens: int) -> None:
    pool = BlockPool(layers)
    slots = taken(pool, -(-tokens // BLOCK))
    run = run_of(layers, tokens)
    pool.write(slots, run)
    assert_holds(pool, slots, run, tokens)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32], ids=str)
def test_the_dtype_is_kept(dtype: mx.Dtype) -> None:  # C13
    layers = [LayerShape(2, 8, 8, dtype)] * 2
    pool = BlockPool(layers)
    slots, run = taken(pool, 2), run_of(layers, 2 * BLOCK)
    pool.write(slots, run)
    assert_holds(pool, slots, run, 2 * BLOCK)
    assert pool.token_bytes == 2 * 2 * (8 + 8) * dtype.size


def test_another_dtype_is_refused() -> None:
    pool = BlockPool(PLAIN)
    half = [(k.astype(mx.float16), v.astype(mx.float16)) for k, v in run_of(PLAIN, BLOCK)]
    with pytest.raises(AssertionError, match="dtype"):
        pool.write(taken(pool, 1), half)


def test_reading_leaves_room_to_grow() -> None:
    pool = BlockPool(PLAIN)
    slots, run = taken(pool, 2), run_of(PLAIN, 20)
    pool.write(slots, run)
    for keys, values in pool.read(slots, 20, 64):
        assert keys.shape == values.shape == (1, 2, 64, 8)
        assert not mx.any(keys[0, :, 20:]).item()


def test_a_read_is_a_copy() -> None:
    pool = BlockPool(PLAIN)
    slots, run = taken(pool, 1), run_of(PLAIN, BLOCK)
    pool.write(slots, run)
    before = pool.read(slots, BLOCK, BLOCK)
    pool.write(slots, run_of(PLAIN, BLOCK, seed=1))
    assert all(mx.array_equal(keys[0], k) for (keys, _), (k, _) in zip(before, run, strict=True))


def test_slots_need_not_lie_together() -> None:
    pool = BlockPool(MIXED)
    slots = taken(pool, 3 * SLAB)
    random.Random(0).shuffle(slots)
    some, run = slots[:5], run_of(MIXED, 5 * BLOCK)
    pool.write(some, run)
    assert_holds(pool, some, run, 5 * BLOCK)


def test_a_block_can_move() -> None:
    pool = BlockPool(MIXED)
    first, *_rest, last = taken(pool, SLAB + 1)
    run = run_of(MIXED, BLOCK)
    pool.write([first], run)
    pool.move(first, last)
    assert first[0] != last[0]
    assert_holds(pool, [last], run, BLOCK)


def test_slots_are_taken_once_and_counted() -> None:
    pool = BlockPool(PLAIN)
    slots = taken(pool, 2 * SLAB)
    assert len(set(slots)) == 2 * SLAB and pool.free == 0
    for slot in slots[5:9]:
        pool.give_back(slot)
    assert pool.free == 4
    assert sorted(pool.take() for _ in range(4)) == sorted(slots[5:9])


def test_slots_come_from_the_fullest_slab() -> None:
    pool = BlockPool(PLAIN)
    slots = taken(pool, 2 * SLAB)
    for slot in [*slots[:3], *slots[SLAB : SLAB + 1]]:
        pool.give_back(slot)
    assert pool.take() == slots[SLAB]


def test_a_closed_slab_gives_its_memory_back() -> None:
    pool = BlockPool(PLAIN)
    slots = taken(pool, SLAB + 2)
    emptiest = pool.emptiest()
    assert emptiest == slots[-1][0] and not pool.is_empty(emptiest)
    assert pool.close(emptiest) == [0, 1]
    assert pool.free == 0
    pool.drop(emptiest)
    assert (pool.slabs, pool.nbytes) == (1, pool.slab_bytes)


def test_arrays_grow_with_slabs_and_not_with_tokens() -> None:  # C19
    pool = BlockPool(MIXED)
    slots = taken(pool, SLAB)
    before = pool.slabs
    for slot in slots:
        pool.write([slot], run_of(MIXED, BLOCK))
    assert pool.slabs == before == 1
    (slab,) = pool._slabs.values()
    assert len(slab.keys) == len(slab.values) == len(set(MIXED))


def test_a_pool_without_layers_takes_no_memory() -> None:
    assert BlockPool([]).token_bytes == 0


def test_writes_are_in_place() -> None:
    """One unevaluated read of a slab makes MLX copy all of it at the next write."""
    layers = [LayerShape(4, 64, 64, mx.float32)] * 4
    pool = BlockPool(layers)
    slots = taken(pool, 4 * SLAB)
    run = run_of(layers, BLOCK)
    mx.eval(run)
    draw = random.Random(0)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    for _ in range(1000):
        pool.write([draw.choice(slots)], run)
        pool.read([draw.choice(slots)], BLOCK, BLOCK)
    held = before - pool.nbytes
    assert (mx.get_peak_memory() - held) < 1.1 * pool.nbytes
    assert np.isclose(mx.get_active_memory(), before, rtol=0.01)
