"""Whole models with and without the kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.cache import BatchKVCache, make_prompt_cache

from mlxnb import native
from mlxnb.native.layers import is_ours
from tests.models.tiny import config_of, random_model
from tests.native.parity import distance, needs_kernels

# Two layers of a tiny model with large weights make much of a rounding: MLX adds up one product
# after the other, the kernels eight sums at a time.
NEAR = 1e-3
TOKENS = [(i * 7919 + 13) % 390 for i in range(60)]


def tiny(architecture: str, **changes: Any) -> Any:
    return random_model(config_of(architecture, 400, **changes))


def run(model: Any, cuts: list[int]) -> mx.array:
    """The logits of TOKENS, fed in parts that end at the cuts."""
    caches = make_prompt_cache(model)
    parts = zip([0, *cuts], [*cuts, len(TOKENS)], strict=True)
    return mx.concatenate([model(mx.array([TOKENS[a:b]]), cache=caches) for a, b in parts], 1)


@needs_kernels
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("bits", [None, 4, 8])
@pytest.mark.parametrize("tied", [False, True])
def test_logits(architecture: str, bits: int | None, tied: bool) -> None:
    model = tiny(architecture, tie_word_embeddings=tied)
    if bits is not None:
        nn.quantize(model, group_size=32, bits=bits)
    cuts = [1, 2, 30, 58, 59]
    before = run(model, cuts)
    mx.eval(before)
    assert native.accelerate(model) > 0
    assert distance(run(model, cuts), before) < NEAR


@needs_kernels
def test_logits_with_scaled_positions() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    model = tiny("llama", rope_scaling=scaling)
    before = run(model, [30])
    mx.eval(before)
    native.accelerate(model)
    assert is_ours(model.layers[0].self_attn.rope)
    assert distance(run(model, [30]), before) < NEAR


@needs_kernels
def test_logits_of_rows_with_left_padding() -> None:
    model = tiny("llama")
    nn.quantize(model, group_size=32, bits=4)
    padded = mx.array([TOKENS[:20], [0] * 7 + TOKENS[:13]])

    def logits() -> list[mx.array]:
        caches = [BatchKVCache([0, 7]) for _ in model.layers]
        first = model(padded, cache=caches)
        return [first[0], first[1, 7:], model(mx.array([[3], [4]]), cache=caches)]

    before = logits()
    mx.eval(before)
    native.accelerate(model)
    for found, expected in zip(logits(), before, strict=True):
        assert distance(found, expected) < NEAR


@needs_kernels
def test_parameters_stay() -> None:
    model = tiny("llama")
    nn.quantize(model, group_size=32, bits=4)
    before = dict(tree_flatten(model.parameters()))
    native.accelerate(model)
    after = dict(tree_flatten(model.parameters()))
    assert list(after) == list(before)
    assert all(after[name].dtype == before[name].dtype for name in before)
    assert all(mx.array_equal(after[name], before[name]) for name in before)
    assert dict(tree_flatten(model.trainable_parameters())).keys() <= before.keys()


@needs_kernels
def test_layers_of_other_kinds_are_left() -> None:
    model = tiny("llama")
    nn.quantize(model, group_size=32, bits=4, mode="mxfp4")
    native.accelerate(model)
    kinds = {type(m) for m in model.modules() if isinstance(m, nn.QuantizedLinear)}
    assert kinds == {nn.QuantizedLinear}


@needs_kernels
def test_it_can_be_done_twice() -> None:
    model = tiny("llama")
    assert native.accelerate(model) == native.accelerate(model)


def test_nothing_changes_when_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_NATIVE", "0")
    model = tiny("llama")
    before = run(model, [30])
    mx.eval(before)
    assert native.accelerate(model) == 0
    assert not any(map(is_ours, model.modules()))
    assert mx.array_equal(run(model, [30]), before)


@needs_kernels
def test_functions_bound_anew_obey_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    native.accelerate(tiny("llama"))
    fresh = tiny("llama")
    monkeypatch.setenv("MLXNB_NATIVE", "0")
    text = graph(fresh)
    assert "Mlxnb" not in text


@needs_kernels
def test_a_layer_is_kernels_alone() -> None:
    model = tiny("llama")
    nn.quantize(model, group_size=32, bits=4)
    native.accelerate(model)
    text = graph(model)
    assert "QuantizedMatmul" not in text
    assert "ScaledDotProductAttention" not in text
    assert [name for name in PRIMITIVES if name not in text] == []


PRIMITIVES = ("MlxnbProduct", "MlxnbAttention", "MlxnbRmsNorm", "MlxnbRope", "MlxnbFeedForward")


def graph(model: Any) -> str:
    import io

    dot = io.StringIO()
    mx.export_to_dot(dot, model(mx.array([[1, 2, 3]]), cache=make_prompt_cache(model)))
    return dot.getvalue()


@needs_kernels
def test_the_demo_model(demo_path: Path) -> None:
    from mlx_lm.utils import load_model

    model, _ = load_model(demo_path, lazy=True)
    model.eval()
    model.update(tree_map(_wide, model.parameters()))
    ids = mx.array([[(i * 7919) % 49000 for i in range(8)]])
    before = model(ids)
    mx.eval(before)
    native.accelerate(model)
    assert distance(model(ids), before) < 1e-4


def _wide(parameter: mx.array) -> mx.array:
    floating = mx.issubdtype(parameter.dtype, mx.floating)
    return parameter.astype(mx.float32) if floating else parameter
