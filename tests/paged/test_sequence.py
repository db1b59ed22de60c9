"""Tables, reference counts and copy-on-write, with a pool of one small layer."""

from __future__ import annotations

import copy
import weakref

import mlx.core as mx
import pytest

from mlxnb.cache.paged import PagedKVCache
from mlxnb.cache.paged_pool import PagedPool
from mlxnb.cache.paged_sequence import PagedSequence
from mlxnb.cache.pool import SLAB
from mlxnb.mlxlm import LayerShape
from paged.conftest import MakeKernels

SHAPE = LayerShape(1, 8, 4, mx.float32)


@pytest.fixture
def pool(kernels: MakeKernels) -> PagedPool:
    return PagedPool([SHAPE, SHAPE], kernels())


def taken(pool: PagedPool) -> int:
    pool.reap()
    return pool.slabs * SLAB - pool.free


def add(sequence: PagedSequence, tokens: int, value: float) -> None:
    """Tokens with this value everywhere, in both layers."""
    start = sequence.length
    for layer in range(2):
        cache = PagedKVCache.at(sequence, layer, start)
        cache.update_and_fetch(
            mx.full((1, 1, tokens, 8), value), mx.full((1, 1, tokens, 4), value + layer)
        )


def values(sequence: PagedSequence, layer: int = 0) -> list[float]:
    _, v = PagedKVCache(sequence, layer).keys_and_values()
    return v[0, 0, :, 0].tolist()


def test_a_sequence_takes_a_slot_when_it_needs_one(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    for length, slots in [(1, 1), (16, 1), (17, 2), (300, 19)]:
        sequence.extend_to(length)
        assert (taken(pool), len(sequence.table)) == (slots, slots)


def test_missing_counts_what_growth_will_take(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 20, 1.0)
    assert (sequence.missing(32), sequence.missing(33)) == (0, 1)
    fork = sequence.fork()
    assert fork.missing(33) == 2
    before = taken(pool)
    add(fork, 13, 2.0)
    assert taken(pool) == before + 2


def test_slots_come_from_the_callback(pool: PagedPool) -> None:
    pool.grow()
    handed = []

    def allocate() -> tuple[int, int]:
        handed.append(pool.take())
        return handed[-1]

    pool.allocate = allocate
    sequence = PagedSequence(pool)
    sequence.extend_to(33)
    assert sequence.table == handed


def test_an_allocator_that_refuses_leaves_the_sequence_usable(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 16, 1.0)
    standing = pool.allocate

    def refuse() -> tuple[int, int]:
        raise MemoryError("full")

    pool.allocate = refuse
    with pytest.raises(MemoryError):
        sequence.extend_to(17)
    pool.allocate = standing
    add(sequence, 4, 2.0)
    assert values(sequence) == [1.0] * 16 + [2.0] * 4


def test_trimming_returns_slots(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 50, 1.0)
    sequence.cut_to(17)
    assert taken(pool) == 2
    sequence.cut_to(16)
    assert taken(pool) == 1
    sequence.release()
    assert (taken(pool), sequence.length) == (0, 0)


def test_a_fork_shares_every_block(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 40, 1.0)
    fork = sequence.fork()
    assert fork.table == sequence.table and taken(pool) == 3
    assert sequence.fork(17).table == sequence.table[:2]


def test_a_shared_tail_is_copied_before_it_is_written(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 20, 1.0)
    fork = sequence.fork()
    add(fork, 2, 2.0)
    add(sequence, 3, 3.0)
    assert fork.table[0] == sequence.table[0] and fork.table[1] != sequence.table[1]
    assert values(fork) == [1.0] * 20 + [2.0] * 2
    assert values(sequence, 1) == [2.0] * 20 + [4.0] * 3
    assert taken(pool) == 3


def test_a_tail_that_nobody_shares_is_not_copied(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 20, 1.0)
    sequence.fork().release()
    table = list(sequence.table)
    add(sequence, 5, 2.0)
    assert sequence.table == table


def test_a_full_shared_block_is_copied_only_if_the_sequence_is_cut_into_it(
    pool: PagedPool,
) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 32, 1.0)
    fork = sequence.fork()
    add(fork, 1, 2.0)
    assert fork.table[:2] == sequence.table
    fork.cut_to(24)
    add(fork, 1, 3.0)
    assert fork.table[0] == sequence.table[0] and fork.table[1] != sequence.table[1]
    assert values(sequence) == [1.0] * 32
    assert values(fork) == [1.0] * 24 + [3.0]


def test_a_forgotten_sequence_gives_its_slots_back(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 20, 1.0)
    fork = sequence.fork()
    del sequence
    assert taken(pool) == 2
    assert pool.holders(fork.table[0]) == 1
    del fork
    assert taken(pool) == 0


def test_a_pool_goes_when_nobody_has_it(kernels: MakeKernels) -> None:
    pool = PagedPool([SHAPE, SHAPE], kernels())
    sequence = PagedSequence(pool)
    add(sequence, 1, 1.0)
    gone = weakref.ref(pool)
    del pool, sequence
    assert gone() is None


def test_deepcopy_shares_blocks_and_pool(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 20, 1.0)
    caches = [PagedKVCache(sequence, layer) for layer in range(2)]
    nbytes = pool.nbytes
    copies = copy.deepcopy(caches)
    assert copies[0].sequence is copies[1].sequence is not sequence
    assert copies[0].pool is pool and pool.nbytes == nbytes
    assert copies[0].sequence.table == sequence.table


def test_moving_a_block_keeps_every_table_right(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 20, 1.0)
    fork = sequence.fork()
    old, new = sequence.table[0], pool.take()
    pool.move(old, new)
    assert sequence.table[0] == fork.table[0] == new
    assert (pool.holders(old), pool.holders(new)) == (0, 2)
    assert values(fork) == [1.0] * 20


def test_adopting_an_equal_block_frees_the_other(pool: PagedPool) -> None:
    a, b = PagedSequence(pool), PagedSequence(pool)
    add(a, 20, 1.0)
    add(b, 20, 1.0)
    b.adopt(0, a.table[0])
    assert b.table[0] == a.table[0] and taken(pool) == 3
    assert values(b) == [1.0] * 20


def decode(sequence: PagedSequence, tokens: int, value: float) -> None:
    """A token at a time, as a row that generates: MLX's operations write these later."""
    for _ in range(tokens):
        add(sequence, 1, value)


def test_decoded_tokens_are_there(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    add(sequence, 10, 1.0)
    decode(sequence, 40, 2.0)
    assert values(sequence, 1) == [2.0] * 10 + [3.0] * 40


def test_what_a_cut_sequence_decoded_does_not_land_in_another(pool: PagedPool) -> None:
    first = PagedSequence(pool)
    add(first, 15, 1.0)
    decode(first, 5, 2.0)
    first.cut_to(16)
    second = PagedSequence(pool)
    add(second, 16, 3.0)
    decode(first, 1, 4.0)
    assert values(second) == [3.0] * 16
    assert values(first) == [1.0] * 15 + [2.0] + [4.0]


def test_what_a_forgotten_sequence_decoded_does_not_land_in_another(pool: PagedPool) -> None:
    first = PagedSequence(pool)
    decode(first, 5, 2.0)
    slots = set(first.table)
    del first
    second = PagedSequence(pool)
    add(second, 16, 3.0)
    assert set(second.table) == slots
    decode(second, 1, 4.0)
    assert values(second) == [3.0] * 16 + [4.0]


def test_a_fork_has_what_was_decoded_before_it(pool: PagedPool) -> None:
    first = PagedSequence(pool)
    decode(first, 20, 1.0)
    fork = first.fork()
    decode(fork, 2, 2.0)
    decode(first, 2, 3.0)
    assert values(fork) == [1.0] * 20 + [2.0] * 2
    assert values(first) == [1.0] * 20 + [3.0] * 2


def test_blocks_outlive_the_sequence_that_decoded_them(pool: PagedPool) -> None:
    first = PagedSequence(pool)
    decode(first, 32, 1.0)
    kept = list(first.table)
    for slot in kept:
        pool.retain(slot)  # as an index does that files them
    first.release()
    second = PagedSequence(pool, kept, 32)
    decode(second, 1, 2.0)
    assert values(second) == [1.0] * 32 + [2.0]


def test_a_failed_call_leaves_no_trace(pool: PagedPool) -> None:
    sequence = PagedSequence(pool)
    decode(sequence, 3, 1.0)
    pool.complete()
    cache = PagedKVCache(sequence, 0)
    cache.update_and_fetch(mx.ones((1, 1, 1, 8)), mx.full((1, 1, 1, 4), 9.0))  # and no second layer
    pool.abandon()
    sequence.cut_to(3)
    decode(sequence, 2, 2.0)
    assert values(sequence, 1) == [2.0] * 3 + [3.0] * 2


def test_the_pool_is_never_copied_by_decoding(kernels: MakeKernels) -> None:
    layers, heads, dim = 16, 8, 64
    pool = PagedPool([LayerShape(heads, dim, dim, mx.float32)] * layers, kernels())
    sequence = PagedSequence(pool)
    caches = [PagedKVCache(sequence, layer) for layer in range(layers)]
    hidden = mx.ones((1, heads, 1, dim))
    for step in range(40):
        if step == 2:
            mx.synchronize()
            mx.reset_peak_memory()
            before = mx.get_active_memory()
        for cache in caches:  # each layer writes what the one before has read
            cache.update_and_fetch(hidden, hidden)
            hidden = cache.attend(hidden, 1.0, None, None)
        mx.async_eval(hidden)
    mx.eval(hidden)
    assert mx.get_peak_memory() - before < pool.slab_bytes / 2
