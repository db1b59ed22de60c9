"""A GGUF file's settings as a config.json, and its tensors' names as mlx-lm's.

Three architectures: llama (whose converter permutes the rows of q and k), qwen2 and qwen3
(whose converter does not). Whatever such a file may say beyond that is refused, not dropped.
"""

from __future__ import annotations

import math
import re
from typing import Any

from mlxnb.errors import ModelBroken, UnsupportedModel
from mlxnb.models.gguf.reader import GGUF

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_IN_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_ROPE_FACTORS = "rope_freqs.weight"


def check_architecture(file: GGUF) -> None:
    """Refuse what is not one of the three, or is a mixture of experts.

    Raises
    ------
    UnsupportedModel
        Lists the architectures that are supported.
    """
    known = ", ".join(ARCHITECTURES)
    if file.architecture not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{file.path}: architecture {file.architecture} is not supported; supported: {known}"
        )
    if file.setting("expert_count", 0):
        raise UnsupportedModel(
            f"{file.path}: a mixture of experts is not supported; supported: dense {known}"
        )


def mlx_names(file: GGUF) -> dict[str, str]:
    """GGUF tensor name → mlx-lm's, for every tensor but the rotary factors.

    Raises
    ------
    UnsupportedModel
        The file holds a tensor that these architectures do not have.
    """
    return {name: _mlx_name(file, name) for name in file.tensors if name != _ROPE_FACTORS}


def _mlx_name(file: GGUF, name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _WHOLE and kind == "weight":
        return f"{_WHOLE[stem]}.weight"
    match = _BLOCK.fullmatch(name)
    if match and match[2] in _IN_BLOCK:
        return f"model.layers.{match[1]}.{_IN_BLOCK[match[2]]}.{match[3]}"
    raise UnsupportedModel(f"{file.path}: tensor {name} is unknown in a {file.architecture} model")


def permuted_heads(file: GGUF, name: str) -> int | None:
    """Number of heads by which the rows of this tensor were permuted, None where they were not.

    llama.cpp's converter turns each head's halves into pairs, for llama alone.
    """
    if file.architecture != "llama":
        return None
    if re.fullmatch(r"blk\.\d+\.attn_q\.(weight|bias)", name):
        return int(file.required("attention.head_count"))
    if re.fullmatch(r"blk\.\d+\.attn_k\.(weight|bias)", name):
        return key_heads(file)
    return None


def key_heads(file: GGUF) -> int:
    """Number of key and value heads."""
    heads = file.setting("attention.head_count_kv", file.required("attention.head_count"))
    if isinstance(heads, list):
        raise UnsupportedModel(f"{file.path}: layers of differing head counts are not supported")
    return int(heads)


def config(file: GGUF, ends: list[int], rope_factors: list[float] | None) -> dict[str, Any]:
    """The config.json of the model, without quantization.

    Parameters
    ----------
    file
        Its header.
    ends
        Ids that end an answer.
    rope_factors
        The tensor of rotary factors, where the file has one.
    """
    heads = int(file.required("attention.head_count"))
    hidden = int(file.required("embedding_length"))
    found: dict[str, Any] = {
        "architectures": [ARCHITECTURES[file.architecture]],
        "model_type": file.architecture,
        "hidden_size": hidden,
        "num_hidden_layers": int(file.required("block_count")),
        "intermediate_size": int(file.required("feed_forward_length")),
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads(file),
        "head_dim": _head_size(file, hidden, heads),
        "rms_norm_eps": float(file.required("attention.layer_norm_rms_epsilon")),
        "vocab_size": _vocabulary_size(file),
        "max_position_embeddings": int(file.required("context_length")),
        "rope_theta": float(file.setting("rope.freq_base", 10000.0)),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "hidden_act": "silu",
    }
    if ends:
        found["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    if "blk.0.attn_q.bias" in file.tensors and file.architecture == "llama":
        found["attention_bias"] = True
    scaling = _rope_scaling(file, rope_factors)
    return {**found, "rope_scaling": scaling} if scaling else found


def _vocabulary_size(file: GGUF) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelBroken(f"{file.path} has no token embedding")
    return embedding.shape[0]


def _head_size(file: GGUF, hidden: int, heads: int) -> int:
    size = int(file.setting("attention.key_length", hidden // heads))
    values = int(file.setting("attention.value_length", size))
    rotated = int(file.setting("rope.dimension_count", size))
    if values != size or rotated != size:
        raise UnsupportedModel(
            f"{file.path}: heads of {size} with values of {values} and {rotated} rotated "
            "dimensions are not supported; supported: all three equal"
        )
    if file.architecture == "qwen2" and size * heads != hidden:
        raise UnsupportedModel(f"{file.path}: qwen2 with heads of {size} is not supported")
    return size


def _rope_scaling(file: GGUF, factors: list[float] | None) -> dict[str, Any] | None:
    kind = file.setting("rope.scaling.type", "none")
    factor = float(file.setting("rope.scaling.factor", 0.0))
    if factors is not None:
        return _llama3_scaling(file, factors)
    if kind == "none" or factor in (0.0, 1.0):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    original = file.setting("rope.scaling.original_context_length")
    if kind == "yarn" and original:
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": int(original),
        }
    raise UnsupportedModel(
        f"{file.path}: rope scaling {kind!r} is not supported; "
        "supported: none, linear, yarn, llama3"
    )


def _llama3_scaling(file: GGUF, factors: list[float]) -> dict[str, Any]:
    """Llama 3's scaling, whose parameters a file keeps only as the factors they give."""
    base = float(file.setting("rope.freq_base", 10000.0))
    scaling = {
        "rope_type": "llama3",
        "factor": float(round(max(factors), 3)),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    expected = _llama3_factors(base, 2 * len(factors), scaling)
    if any(abs(one - other) > 1e-3 * other for one, other in zip(factors, expected, strict=True)):
        raise UnsupportedModel(
            f"{file.path}: its rotary factors are not those of Llama 3's scaling, "
            "the only ones supported"
        )
    return scaling


def _llama3_factors(base: float, size: int, scaling: dict[str, Any]) -> list[float]:
    old, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    found = []
    for at in range(0, size, 2):
        wavelength = 2 * math.pi * base ** (at / size)
        smooth = (old / wavelength - low) / (high - low)
        smooth = min(1.0, max(0.0, smooth))
        found.append(1 / ((1 - smooth) / factor + smooth))
    return found
