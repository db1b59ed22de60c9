"""What a chunk of a prompt takes: arithmetic, and plain MLX on a CPU beside it."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.tiny import config_of, random_model

from mlxnb import mlxlm
from mlxnb.engine.activations import FUSED, SLACK, Activations
from mlxnb.models.memory import on_cpu

LLAMA = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
}


def test_a_dense_layer_in_half_precision() -> None:
    """Llama 3 8B: 0.3 GiB for a chunk of 2,048 tokens."""
    found = Activations.of(LLAMA, 2)
    assert found == Activations(int(SLACK * (3 * 4096 + 3 * 14336) * 2), 0)
    assert 2**28 < found.nbytes(2048, 100_000) < 2**29


@pytest.mark.parametrize(
    ("config", "fused", "scores"),
    [
        (LLAMA, None, 0),
        (LLAMA | {"head_dim": 256}, None, int(SLACK * 32 * 2)),
        (LLAMA | {"head_dim": 256}, True, 0),
        (LLAMA, False, int(SLACK * 32 * 2)),
    ],
)
def test_scores_count_where_attention_keeps_them(
    config: dict[str, Any], fused: bool | None, scores: int
) -> None:
    assert 128 in FUSED and 256 not in FUSED
    found = Activations.of(config, 2, fused)
    assert found is not None and found.score_bytes == scores


def test_experts_count_as_many_as_a_token_passes() -> None:
    moe = {**LLAMA, "intermediate_size": 1000, "moe_intermediate_size": 4000}
    found = Activations.of(moe | {"num_experts_per_tok": 8}, 2)
    assert found == Activations(int(SLACK * (3 * 4096 + 3 * 8 * 4000) * 2), 0)


def test_a_model_of_several_kinds_says_it_of_its_text() -> None:
    assert Activations.of({"text_config": LLAMA}, 2) == Activations.of(LLAMA, 2)


@pytest.mark.parametrize("config", [{}, {"hidden_size": 64}, {"hidden_size": [64], "n": 4}])
def test_what_a_config_does_not_say_is_not_made_up(config: dict[str, Any]) -> None:
    assert Activations.of(config, 2) is None


@given(
    st.builds(Activations, st.integers(1, 10**7), st.integers(0, 10**4)),
    st.integers(0, 10**12),
    st.integers(0, 10**6),
    st.integers(1, 4096),
)
def test_the_largest_chunk_that_fits(made: Activations, room: int, context: int, most: int) -> None:
    found = made.fitting(room, context, most)
    assert 0 <= found <= most
    assert made.nbytes(found, context) <= room
    assert found == most or made.nbytes(found + 1, context) > room


@pytest.mark.skipif(not on_cpu(), reason="compares with MLX's own operations on a CPU")
@pytest.mark.parametrize("heads", [8, 16])
@pytest.mark.parametrize(("tokens", "context"), [(256, 1), (512, 1), (512, 1500)])
def test_an_estimate_is_about_what_plain_mlx_takes(
    monkeypatch: pytest.MonkeyPatch, heads: int, tokens: int, context: int
) -> None:
    monkeypatch.setenv("MLXNB_NATIVE", "0")  # another test may have rebound this module
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": heads}
    config = config_of("llama", 100, num_key_value_heads=heads // 2, **sizes)
    model = random_model(config)
    caches = mlxlm.new_caches(model)

    def feed(count: int) -> None:
        model(mx.array([[n % 100 for n in range(count)]]), cache=caches)
        mlxlm.evaluate(caches)
        mx.clear_cache()

    feed(context)
    mlxlm.widen(caches, context + tokens)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    feed(tokens)
    peak = mx.get_peak_memory() - before
    estimate = Activations.of(config, 4, fused=False)
    assert estimate is not None
    assert peak <= estimate.nbytes(tokens, context) <= 2 * peak
