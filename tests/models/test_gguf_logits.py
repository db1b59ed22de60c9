from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from mlx.utils import tree_unflatten
from tokenizers import Tokenizer

from mlxnb.models.folder import read_config
from mlxnb.models.gguf import weights as import_weights
from mlxnb.models.load import build
from mlxnb.models.resolve import resolve

from .tiny import config_of, random_model, random_rows, weights_of, write_gguf

TOKENS = mx.array([[1, 70, 5, 300, 12, 9, 9, 41, 260, 3]])
ARCHITECTURES = ["llama", "qwen2", "qwen3"]

pytestmark = pytest.mark.usefixtures("cache")


def imported_logits(path: Path) -> np.ndarray:
    loaded = build(resolve(path, progress=False))
    return np.array(loaded.model(TOKENS))


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference, relative to the spread of the logits."""
    return float(np.abs(found - wanted).max() / wanted.std())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_float32_logits_are_the_source_models(
    architecture: str, tied: bool, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    size = tokenizer.get_vocab_size()
    config = config_of(architecture, size, tie_word_embeddings=tied)
    model = random_model(config)
    path = write_gguf(tmp_path / "tiny.gguf", config, weights_of(model), tokenizer)
    assert difference(imported_logits(path), np.array(model(TOKENS))) < 1e-5


def test_llamas_rows_left_permuted_would_show(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of("llama", tokenizer.get_vocab_size())
    model = random_model(config)
    path = write_gguf(tmp_path / "tiny.gguf", config, weights_of(model), tokenizer)
    monkeypatch.setattr(import_weights, "permuted_heads", lambda file, name: None)
    assert difference(imported_logits(path), np.array(model(TOKENS))) > 0.1


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_qwens_rows_turned_would_show(
    architecture: str, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turned(file: Any, name: str) -> int | None:
        return 4 if "attn_q.weight" in name else None

    config = config_of(architecture, tokenizer.get_vocab_size())
    model = random_model(config)
    path = write_gguf(tmp_path / "tiny.gguf", config, weights_of(model), tokenizer)
    monkeypatch.setattr(import_weights, "permuted_heads", turned)
    assert difference(imported_logits(path), np.array(model(TOKENS))) > 0.1


def rounded(config: dict[str, Any], model: Any, kind: Type) -> Any:
    """The model with its matrices rounded as GGML's own code rounds them."""
    values = weights_of(model)
    for name, value in values.items():
        if value.ndim > 1:
            packed = gguf.quants.quantize(value, kind)
            values[name] = gguf.quants.dequantize(packed, kind)
    other = random_model(config, seed=1)
    other.update(tree_unflatten([(name, mx.array(value)) for name, value in values.items()]))
    return other


@pytest.mark.parametrize("kind", [Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_1])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_quantized_logits_are_those_of_the_rounded_weights(
    architecture: str, kind: Type, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    config = config_of(architecture, tokenizer.get_vocab_size())
    model = random_model(config)
    path = write_gguf(tmp_path / "tiny.gguf", config, weights_of(model), tokenizer, quantized=kind)
    found = imported_logits(path)
    # biases of 4 bits are rounded to halves, 2**-11 of a scale's eightfold
    assert difference(found, np.array(rounded(config, model, kind)(TOKENS))) < 2e-3
    assert difference(found, np.array(model(TOKENS))) > 2e-3


def test_a_mix_of_k_quants_is_what_ggml_dequantizes(tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = config_of("llama", tokenizer.get_vocab_size(), hidden_size=256, intermediate_size=512)
    model = random_model(config)
    weights, raw = weights_of(model), {}
    kinds = {"v_proj": Type.Q6_K, "lm_head": Type.Q6_K, "down_proj": Type.Q5_K}
    for number, (name, value) in enumerate(weights.items()):
        if value.ndim > 1:
            kind = kinds.get(name.split(".")[-2], Type.Q4_K)
            raw[name] = (random_rows(kind.name, *value.shape, seed=number), kind)
            weights[name] = gguf.quants.dequantize(*raw[name])
    model.update(tree_unflatten([(name, mx.array(value)) for name, value in weights.items()]))
    path = write_gguf(tmp_path / "mix.gguf", config, weights, tokenizer, raw=raw)
    loaded = build(resolve(path, progress=False))
    assert difference(np.array(loaded.model(TOKENS)), np.array(model(TOKENS))) < 1e-2
    assert loaded.model.layers[0].self_attn.q_proj.bits == 4
    assert loaded.model.layers[0].mlp.down_proj.bits == 5
    assert loaded.info.quantization == "4-bit g32"


@pytest.mark.parametrize(
    ("kind", "dtype"), [(Type.F32, "float32"), (Type.BF16, "bfloat16"), (Type.Q8_0, "float16")]
)
def test_the_config_names_the_dtype_of_activations(
    kind: Type, dtype: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    config = config_of("qwen2", tokenizer.get_vocab_size())
    weights = weights_of(random_model(config))
    path = write_gguf(tmp_path / "tiny.gguf", config, weights, tokenizer, quantized=kind)
    assert read_config(resolve(path, progress=False).path)["dtype"] == dtype


def test_llamas_biases_are_turned_with_their_rows(tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = config_of("llama", tokenizer.get_vocab_size(), attention_bias=True)
    model = random_model(config)
    path = write_gguf(tmp_path / "tiny.gguf", config, weights_of(model), tokenizer)
    assert difference(imported_logits(path), np.array(model(TOKENS))) < 1e-5


@pytest.mark.parametrize(
    ("scaling", "extra"),
    [
        (
            {"rope_type": "linear", "factor": 4.0},
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        ),
        ({"rope_type": "linear", "factor": 2.0}, {"rope.scale_linear": 2.0}),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 128,
            },
        ),
    ],
)
def test_stretched_positions_are_kept(
    scaling: dict[str, Any], extra: dict[str, Any], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    config = config_of("qwen2", tokenizer.get_vocab_size(), rope_scaling=scaling)
    model = random_model(config)
    named = {f"qwen2.{key}": value for key, value in extra.items()}
    path = write_gguf(tmp_path / "tiny.gguf", config, weights_of(model), tokenizer, extra=named)
    assert difference(imported_logits(path), np.array(model(TOKENS))) < 1e-5


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3s_rotary_factors_become_its_scaling(
    factor: float, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = config_of(
        "llama", tokenizer.get_vocab_size(), rope_scaling=scaling, rope_theta=500000.0
    )
    model = random_model(config)
    rope = model.model.layers[0].self_attn.rope
    plain = config["rope_theta"] ** (np.arange(0, rope.dims, 2) / rope.dims)
    factors = (np.array(rope._freqs) / plain).astype(np.float32)
    weights = {**weights_of(model), "rope_freqs.weight": factors}
    path = write_gguf(tmp_path / "tiny.gguf", config, weights, tokenizer)
    far = mx.array([list(range(3, 300))])
    loaded = build(resolve(path, progress=False))
    assert loaded.config["rope_scaling"] == scaling
    assert difference(np.array(loaded.model(far)), np.array(model(far))) < 1e-4
