"""Transformer blocks as two kernels, against the model's own blocks in plain MLX."""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxnb import mlxlm, native
from mlxnb.cache.paged import PagedKVCache, paged_caches
from mlxnb.cache.paged_models import rebind
from mlxnb.cache.paged_pool import PagedPool
from mlxnb.cache.paged_sequence import PagedSequence
from mlxnb.native.extension import extension
from tests.models.tiny import config_of, random_model
from tests.native.parity import NEAR, distance, needs_kernels, normal

pytestmark = needs_kernels

ARCHITECTURES = ["llama", "qwen2", "qwen3"]
COUNTS = [*range(1, 34), 128, 1000]
TOKENS = [(i * 7919 + 13) % 390 for i in range(200)]
# of whole models: rounding grows from layer to layer
MODEL_NEAR = 1e-3


@cache
def models(architecture: str, bits: int | None) -> tuple[Any, Any]:
    """A tiny model as it is, and the same with kernels."""
    pair = []
    for _ in range(2):
        mx.random.seed(7)
        model = random_model(config_of(architecture, 400))
        if bits is not None:
            nn.quantize(model, group_size=32, bits=bits)
        mx.eval(model.parameters())
        pair.append(model)
    native.accelerate(pair[1])
    assert rebind(pair[1])
    return pair[0], pair[1]


def pool_for(model: Any) -> PagedPool:
    caches = mlxlm.new_caches(model)
    mx.eval(model(mx.array([[1]]), cache=caches))
    return PagedPool(mlxlm.shapes(caches))


def logits(model: Any, caches: Any, tokens: list[int], cuts: list[int]) -> mx.array:
    """Logits of the tokens, fed in parts that end at the cuts."""
    parts = zip([0, *cuts], [*cuts, len(tokens)], strict=True)
    return mx.concatenate([model(mx.array([tokens[a:b]]), cache=caches) for a, b in parts], 1)


def graph(model: Any, caches: Any) -> str:
    import io

    dot = io.StringIO()
    mx.export_to_dot(dot, model(mx.array([[1, 2, 3]]), cache=caches))
    return dot.getvalue()


# --- whole models -----------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("bits", [None, 4, 8])
def test_logits_on_a_paged_cache(architecture: str, bits: int | None) -> None:
    plain, fused = models(architecture, bits)
    cuts = [1, 2, 7, 40, 41, 120, 199]
    expected = logits(plain, mlxlm.new_caches(plain), TOKENS, cuts)
    paged = paged_caches(PagedSequence(pool_for(fused)))
    assert distance(logits(fused, paged, TOKENS, cuts), expected) < MODEL_NEAR
    assert mlxlm.lengths(paged) == {200}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_of_ragged_rows(architecture: str) -> None:
    plain, fused = models(architecture, 4)
    pool, lengths = pool_for(fused), [1, 16, 17, 90, 33]
    rows, expected = [], []
    for length in lengths:
        rows.append(paged_caches(PagedSequence(pool)))
        logits(fused, rows[-1], TOKENS[:length], [])
        expected.append(logits(plain, mlxlm.new_caches(plain), TOKENS[: length + 1], []))
    batch = [PagedKVCache.merge(layers) for layers in zip(*rows, strict=True)]
    found = fused(mx.array([[TOKENS[length]] for length in lengths]), cache=batch)
    for row, wanted in zip(found, expected, strict=True):
        assert distance(row[-1], wanted[0, -1]) < MODEL_NEAR


def test_prompts_padded_on_the_right() -> None:
    plain, fused = models("llama", 4)
    pool, lengths = pool_for(fused), [3, 40]
    rows = [[PagedKVCache(PagedSequence(pool), n) for n in range(len(pool.layers))] for _ in "ab"]
    batch = [PagedKVCache.merge(layers) for layers in zip(*rows, strict=True)]
    for layer in batch:
        layer.prepare(lengths=lengths, right_padding=[37, 0])
    padded = mx.array([TOKENS[:3] + [0] * 37, TOKENS[:40]])
    found = fused(padded, cache=batch)
    for layer in batch:
        layer.finalize()
    after = fused(mx.array([[TOKENS[length]] for length in lengths]), cache=batch)
    for row, length in enumerate(lengths):
        wanted = logits(plain, mlxlm.new_caches(plain), TOKENS[: length + 1], [])
        assert distance(found[row, :length], wanted[0, :length]) < MODEL_NEAR
        assert distance(after[row, -1], wanted[0, -1]) < MODEL_NEAR


def test_logits_with_scaled_positions() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    model = random_model(config_of("llama", 400, rope_scaling=scaling))
    expected = logits(model, mlxlm.new_caches(model), TOKENS, [30])
    mx.eval(expected)
    native.accelerate(model)
    assert rebind(model)
    paged = paged_caches(PagedSequence(pool_for(model)))
    assert "MlxnbSelfAttention" in graph(model, paged)
    mlxlm.trim(paged, 0)
    assert distance(logits(model, paged, TOKENS, [30]), expected) < MODEL_NEAR


# --- which blocks, and when -------------------------------------------------------------------


def test_a_block_on_a_paged_cache_is_two_kernels() -> None:
    _, fused = models("llama", 4)
    text = graph(fused, paged_caches(PagedSequence(pool_for(fused))))
    assert {"MlxnbSelfAttention", "MlxnbFeedForward"} <= {n for n in text.split('"') if n}
    assert not any(name in text for name in ("MlxnbRope", "MlxnbPagedWrite", "MlxnbGated"))


def test_a_block_on_a_contiguous_cache_attends_as_it_did() -> None:
    _, fused = models("llama", 4)
    text = graph(fused, mlxlm.new_caches(fused))
    assert "MlxnbFeedForward" in text
    assert "MlxnbSelfAttention" not in text


def test_the_switch_is_obeyed_later_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fused = models("llama", 4)
    monkeypatch.setenv("MLXNB_NATIVE", "0")
    assert "FeedForward" not in graph(fused, mlxlm.new_caches(fused))


def test_half_precision_goes_the_long_way() -> None:
    model = random_model(config_of("llama", 400))
    model.set_dtype(mx.float16)
    native.accelerate(model)
    assert "FeedForward" not in graph(model, mlxlm.new_caches(model))


def test_a_block_with_other_layers_goes_the_long_way() -> None:
    model = random_model(config_of("llama", 400))
    nn.quantize(model, group_size=32, bits=4, mode="mxfp4")
    native.accelerate(model)
    assert "FeedForward" not in graph(model, mlxlm.new_caches(model))


def test_the_weights_are_those_of_the_model_and_no_copies() -> None:
    model = random_model(config_of("llama", 400))
    nn.quantize(model, group_size=32, bits=4)
    mx.eval(model.parameters())
    before = mx.get_active_memory()
    native.accelerate(model)
    spare = 64 * 400  # arenas are rounded up, an array at a time
    assert mx.get_active_memory() <= before + spare


# --- the kernels by themselves ----------------------------------------------------------------


def matrix(rows: int, depth: int, bits: int, group: int, seed: int) -> tuple[Any, mx.array]:
    """A quantised matrix for kernels, and the same in floats."""
    packed = mx.quantize(normal(rows, depth, seed=seed) / depth**0.5, group, bits)
    return extension().Matrix(*packed, None, group, bits), mx.dequantize(*packed, group, bits)


def feed_forward(width: int, hidden: int, bits: int, group: int) -> tuple[Any, Any]:
    """The kernel, and the same in MLX."""
    weight = 1 + normal(width, seed=9) / 4
    (gate, g), (up, u) = (matrix(hidden, width, bits, group, seed) for seed in (1, 2))
    down, d = matrix(width, hidden, bits, group, 3)
    kernel = extension().FeedForward(extension().Scale(weight, 1e-5), gate, up, down)

    def twin(x: mx.array) -> mx.array:
        n = mx.fast.rms_norm(x, weight, 1e-5)
        return x + (nn.silu(n @ g.T) * (n @ u.T)) @ d.T

    return kernel, twin


@pytest.mark.parametrize("count", COUNTS)
def test_feeding_any_number_of_rows(count: int) -> None:
    kernel, twin = feed_forward(96, 160, 4, 32)
    x = normal(count, 96)
    assert distance(kernel(x), twin(x)) < NEAR[mx.float32]


@given(
    width=st.integers(1, 5),
    hidden=st.integers(1, 12),
    bits=st.sampled_from([4, 8]),
    group=st.sampled_from([32, 64, 128]),
    shape=st.lists(st.integers(1, 7), min_size=0, max_size=3),
)
@settings(deadline=None, max_examples=60)
def test_feeding_any_shape(
    width: int, hidden: int, bits: int, group: int, shape: list[int]
) -> None:
    kernel, twin = feed_forward(width * group, hidden * group, bits, group)
    x = normal(*shape, width * group)
    assert distance(kernel(x), twin(x)) < NEAR[mx.float32]


def test_an_empty_input_is_fed() -> None:
    kernel, _ = feed_forward(32, 32, 4, 32)
    assert kernel(mx.zeros((0, 32))).shape == (0, 32)


def test_what_does_not_fit_together_is_refused() -> None:
    kernel, _ = feed_forward(64, 96, 4, 32)
    scale = extension().Scale(mx.ones(64), 1e-5)
    (wide, _), (other, _) = matrix(96, 64, 4, 32, 1), matrix(64, 64, 4, 32, 2)
    with pytest.raises(ValueError, match="do not fit together"):
        extension().FeedForward(scale, wide, wide, other)
    with pytest.raises(ValueError, match="weight of a norm"):
        extension().FeedForward(extension().Scale(mx.ones(32), 1e-5), wide, wide, wide)
    with pytest.raises(ValueError, match="as wide as the block"):
        kernel(normal(1, 32))
    with pytest.raises(ValueError, match="float32"):
        kernel(normal(1, 64).astype(mx.float16))
    frequencies = mx.ones(8)
    for heads, kv_heads in [(0, 1), (4, 0), (4, 3), (5, 5)]:
        with pytest.raises(ValueError, match=r"heads|fit together"):
            extension().SelfAttention(
                scale, other, other, other, other, None, None, frequencies, False, 1.0,
                heads, kv_heads, 0.1,
            )  # fmt: skip


def test_pages_of_another_kind_are_refused() -> None:
    _, fused = models("llama", 4)
    block = fused.layers[0].fused
    keys = [mx.zeros((1, 3, 4, 16, 8))]
    pages = extension().Pages(keys, keys, [0], 1, [0], [1])
    with pytest.raises(ValueError, match="slabs are of another kind"):
        block.attend(mx.zeros((1, 1, fused.args.hidden_size)), pages, 0, None)
    with pytest.raises(ValueError, match="of the pages"):
        block.attend(mx.zeros((2, 1, fused.args.hidden_size)), pages, 0, None)
