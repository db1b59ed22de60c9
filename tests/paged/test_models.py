"""Tiny models of several families on paged caches give the logits of contiguous ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import BatchGenerator
from parity.families import FAMILIES, VOCABULARY

from mlxnb import mlxlm
from mlxnb.cache.paged import PagedKVCache, paged_caches
from mlxnb.cache.paged_batch import PagedBatchKVCache
from mlxnb.cache.paged_models import rebind
from mlxnb.cache.paged_pool import PagedPool
from mlxnb.cache.paged_sequence import PagedSequence
from mlxnb.cache.pool import SLAB
from mlxnb.engine.logprobs import normalized
from paged.conftest import MakeKernels

NAMES = ["llama", "qwen3", "phi3", "gemma", "cohere", "olmoe"]
TOKENS = np.random.default_rng(0).integers(0, VOCABULARY, 400).tolist()


@cache
def model_of(name: str) -> Any:
    model = FAMILIES[name].model()
    assert rebind(model)
    return model


@cache
def shapes_of(name: str) -> list[mlxlm.LayerShape]:
    caches = mlxlm.new_caches(model_of(name))
    mx.eval(model_of(name)(mx.array([[1]]), cache=caches))
    return mlxlm.shapes(caches)


NewPool = Callable[[str], PagedPool]


@pytest.fixture
def new_pool(kernels: MakeKernels) -> NewPool:
    return lambda name: PagedPool(shapes_of(name), kernels())


def feed(model: Any, caches: Any, tokens: list[int], *chunks: int) -> np.ndarray[Any, Any]:
    """Logits of all tokens, fed in these chunks, then one by one."""
    parts, at = [], 0
    for size in [*chunks, *[1] * (len(tokens) - sum(chunks))]:
        logits = model(mx.array([tokens[at : at + size]]), cache=caches)
        mx.eval(logits, [c.state for c in caches])
        parts.append(np.array(logits[0]))
        at += size
    return np.concatenate(parts)


@cache
def expected(name: str, *tokens: int) -> np.ndarray[Any, Any]:
    model = model_of(name)
    return feed(model, mlxlm.new_caches(model), list(tokens), len(tokens))


def same(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> None:
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("name", NAMES)
def test_prefill_in_chunks_and_decode(name: str, new_pool: NewPool) -> None:
    caches = paged_caches(PagedSequence(new_pool(name)))
    tokens = TOKENS[:70]
    same(feed(model_of(name), caches, tokens, 5, 11, 1, 40), expected(name, *tokens))
    assert mlxlm.lengths(caches) == {70}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keep", [1, 16, 20, 33])
def test_trim_and_go_on(name: str, keep: int, new_pool: NewPool) -> None:
    caches = paged_caches(PagedSequence(new_pool(name)))
    feed(model_of(name), caches, TOKENS[:50], 50)
    mlxlm.trim(caches, keep)
    other = TOKENS[100:120]
    found = feed(model_of(name), caches, other, 17)
    same(found, expected(name, *TOKENS[:keep], *other)[keep:])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [16, 37])
def test_two_sequences_read_one_prefix(name: str, length: int, new_pool: NewPool) -> None:
    pool, model = new_pool(name), model_of(name)
    first = PagedSequence(pool)
    feed(model, paged_caches(first), TOKENS[:37], 37)
    blocks = SLAB * pool.slabs - pool.free
    second = first.fork(length)
    assert SLAB * pool.slabs - pool.free == blocks
    a, b = paged_caches(first), paged_caches(second)
    for at in range(100, 120):  # in turns
        feed(model, a, TOKENS[at : at + 1])
        feed(model, b, TOKENS[at + 100 : at + 101])
    last = 5
    wanted = expected(name, *TOKENS[:37], *TOKENS[100:120], last)[-1:]
    same(feed(model, a, [last]), wanted)
    wanted = expected(name, *TOKENS[:length], *TOKENS[200:220], last)[-1:]
    same(feed(model, b, [last]), wanted)


def test_a_deepcopy_goes_its_own_way(new_pool: NewPool) -> None:
    name = "llama"
    model, pool = model_of(name), new_pool(name)
    caches = paged_caches(PagedSequence(pool))
    feed(model, caches, TOKENS[:20], 20)
    copies = copy.deepcopy(caches)
    feed(model, caches, TOKENS[50:60], 10)
    found = feed(model, copies, TOKENS[20:30], 10)
    same(found, expected(name, *TOKENS[:30])[20:])


# --- batches ------------------------------------------------------------------------------------


def prefilled(name: str, pool: PagedPool, tokens: list[int]) -> list[PagedKVCache]:
    caches = paged_caches(PagedSequence(pool))
    feed(model_of(name), caches, tokens, len(tokens))
    return caches


@pytest.mark.parametrize("name", NAMES)
def test_ragged_rows_decode_together(name: str, new_pool: NewPool) -> None:
    pool, lengths = new_pool(name), (1, 16, 39)
    rows = [prefilled(name, pool, TOKENS[:n]) for n in lengths]
    batch = [PagedKVCache.merge(layers) for layers in zip(*rows, strict=True)]
    for step in range(3):
        tokens = mx.array([[TOKENS[n + step]] for n in lengths])
        logits = np.array(model_of(name)(tokens, cache=batch))[:, 0]
        wanted = [expected(name, *TOKENS[: n + step + 1])[-1] for n in lengths]
        same(logits, np.stack(wanted))


def test_a_padded_prompt_leaves_each_row_its_own_length(new_pool: NewPool) -> None:
    name, prompts = "llama", [TOKENS[:3], TOKENS[50:85], TOKENS[90:108]]
    pool = new_pool(name)
    started = [prefilled(name, pool, prompt[:2]) for prompt in prompts]
    batch = [PagedKVCache.merge(layers) for layers in zip(*started, strict=True)]
    rest = [prompt[2:] for prompt in prompts]
    longest = max(map(len, rest))
    padded = mx.array([r + [0] * (longest - len(r)) for r in rest])
    for layer in batch:
        layer.prepare(
            lengths=[len(r) for r in rest], right_padding=[longest - len(r) for r in rest]
        )
    for begin in range(0, longest, 8):
        model_of(name)(padded[:, begin : begin + 8], cache=batch)
        mx.eval([c.state for c in batch])
    for layer in batch:
        layer.finalize()
    assert batch[0].offset.tolist() == [len(prompt) for prompt in prompts]
    assert [row.length for row in batch[0].rows()] == [len(prompt) for prompt in prompts]
    logits = np.array(model_of(name)(mx.array([[7]] * 3), cache=batch))[:, 0]
    same(logits, np.stack([expected(name, *prompt, 7)[-1] for prompt in prompts]))


def test_rows_leave_join_and_are_taken_out(new_pool: NewPool) -> None:
    name = "llama"
    model, pool = model_of(name), new_pool(name)
    rows = [prefilled(name, pool, TOKENS[:n]) for n in (10, 20)]
    batch = [PagedKVCache.merge(layers) for layers in zip(*rows, strict=True)]
    third = prefilled(name, pool, TOKENS[:33])
    for layer, joining in zip(batch, third, strict=True):
        layer.extend(PagedKVCache.merge([joining]))
    taken = [layer.extract(1) for layer in batch]
    assert taken[0].sequence is taken[1].sequence
    for layer in batch:
        layer.filter([0, 2])
    logits = np.array(model(mx.array([[7], [8]]), cache=batch))[:, 0]
    wanted = [expected(name, *TOKENS[:n], t)[-1] for n, t in ((10, 7), (33, 8))]
    same(logits, np.stack(wanted))
    same(feed(model, taken, [9]), expected(name, *TOKENS[:20], 9)[-1:])


def test_a_row_taken_out_while_it_runs_on_is_a_snapshot(new_pool: NewPool) -> None:
    name = "llama"
    model, pool = model_of(name), new_pool(name)
    batch = [PagedKVCache.merge([c]) for c in prefilled(name, pool, TOKENS[:20])]
    taken = [layer.extract(0) for layer in batch]
    model(mx.array([[3]]), cache=batch)
    again = [layer.extract(0) for layer in batch]
    assert (taken[0].offset, again[0].offset) == (20, 21)
    same(feed(model, taken, [9]), expected(name, *TOKENS[:20], 9)[-1:])
    same(feed(model, again, [9]), expected(name, *TOKENS[:20], 3, 9)[-1:])


def generate(model: Any, prompts: list[list[int]], caches: Any, lengths: list[int]) -> list[Any]:
    """Tokens and final caches of mlx-lm's generator; rows join a step after each other."""
    generator = BatchGenerator(model, stream=mx.default_stream(mx.default_device()))
    tokens: dict[int, list[int]] = {}
    ended: dict[int, Any] = {}
    waiting = list(zip(prompts, caches, lengths, strict=True))
    while waiting or len(ended) < len(tokens):
        if waiting:
            prompt, cache_, length = waiting.pop(0)
            (uid,) = generator.insert([prompt], [length], caches=[cache_])
            tokens[uid] = []
        _, responses = generator.next()
        for response in responses:
            tokens[response.uid].append(response.token)
            if response.finish_reason:
                ended[response.uid] = response.prompt_cache
    generator.close()
    return [(tokens[uid], ended[uid]) for uid in tokens]


@pytest.mark.parametrize("name", NAMES)
def test_mlx_lms_batch_generator(name: str, new_pool: NewPool) -> None:
    model, pool = model_of(name), new_pool(name)
    prompts = [TOKENS[:25], TOKENS[30:32], TOKENS[40:80], TOKENS[10:26]]
    lengths = [4, 12, 3, 7]
    plain = generate(model, prompts, [mlxlm.new_caches(model) for _ in prompts], lengths)
    paged = generate(model, prompts, [paged_caches(PagedSequence(pool)) for _ in prompts], lengths)
    assert [tokens for tokens, _ in paged] == [tokens for tokens, _ in plain]
    for (_, a), (_, b) in zip(paged, plain, strict=True):
        assert mlxlm.lengths(a) == mlxlm.lengths(b)
        for ours, theirs in zip(a, b, strict=True):
            keys, values = ours.keys_and_values()
            same(np.array(keys), np.array(theirs.keys[:, :, : theirs.offset]))
            same(np.array(values), np.array(theirs.values[:, :, : theirs.offset]))


def test_the_batch_generator_leaves_no_slot_behind(new_pool: NewPool) -> None:
    name = "llama"
    pool = new_pool(name)
    prompts = [TOKENS[:25], TOKENS[30:32], TOKENS[40:80]]
    ended = generate(
        model_of(name),
        prompts,
        [paged_caches(PagedSequence(pool)) for _ in prompts],
        [3, 9, 5],
    )
    sequences = [caches[0].sequence for _, caches in ended]
    pool.reap()
    held = {slot for sequence in sequences for slot in sequence.table}
    assert SLAB * pool.slabs - pool.free == len(held)
    assert all(pool.holders(slot) == 1 for slot in held)


def taken(pool: PagedPool) -> int:
    pool.reap()
    return SLAB * pool.slabs - pool.free


def test_the_engines_batch_takes_rows_in_and_out(new_pool: NewPool) -> None:
    name = "llama"
    model, pool = model_of(name), new_pool(name)
    prompts = [TOKENS[:40], TOKENS[50:59]]
    rows = [prefilled(name, pool, prompt[:-1]) for prompt in prompts]
    before = taken(pool)
    batch = mlxlm.Batch(model, normalized)
    uids = [
        batch.join(row, prompt[:-1], prompt[-1], lambda x: mx.argmax(x, axis=-1), [])
        for row, prompt in zip(rows, prompts, strict=True)
    ]
    del rows
    drawn: dict[int, list[int]] = {uid: [] for uid in uids}
    for _ in range(4):
        for step in batch.step():
            drawn[step.uid].append(step.token)
    assert taken(pool) == before  # nobody has copied a block
    caches, tokens, drawn_last = batch.leave(uids[0])
    assert drawn_last is not None
    pending, logprobs = drawn_last
    assert logprobs.argmax().item() == pending
    for step in batch.step():
        drawn[step.uid].append(step.token)
    assert tokens == prompts[0] + drawn[uids[0]]
    same(feed(model, caches, [pending]), expected(name, *tokens, pending)[-1:])
    for uid, prompt in zip(uids, prompts, strict=True):
        text = prompt + drawn[uid]
        best = expected(name, *text).argmax(axis=-1)[len(prompt) - 1 : -1]
        assert best.tolist() == drawn[uid]
    batch.close()


def test_rows_begin_at_position_0(new_pool: NewPool) -> None:
    pool = new_pool("llama")
    batch = PagedBatchKVCache([PagedSequence(pool)], [0], 0)
    with pytest.raises(ValueError, match="pad on the right"):
        batch.prepare(left_padding=[1])
