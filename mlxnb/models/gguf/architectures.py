"""A GGUF file's settings as a config.json, and its tensors' names as mlx-lm's.

Three architectures: llama (whose converter permutes the rows of q and k), qwen2 and qwen3
(whose converter does not). Whatever such a file may say beyond that is refused, not dropped.
"""

from __future__ import annotations

import re
from typing import Any

from mlxnb.errors import ModelBroken, UnsupportedModel
from mlxnb.models.gguf.reader import GGUF
from mlxnb.models.gguf.rope import rope_scaling, shortest

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_IN_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
ROPE_FACTORS = "rope_freqs.weight"


def check_architecture(file: GGUF) -> None:
    """Refuse what is not one of the three, a mixture of experts, or a part of a split file.

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
    if file.metadata.get("split.count", 1) > 1:
        raise UnsupportedModel(
            f"{file.path} is one of {file.metadata['split.count']} parts of a model; "
            "merge them first: llama-gguf-split --merge"
        )


def mlx_names(file: GGUF) -> dict[str, str]:
    """GGUF tensor name → mlx-lm's, for every tensor but the rotary factors.

    Raises
    ------
    ModelBroken
        A tensor that the architecture needs is missing.
    UnsupportedModel
        The file holds one that the architecture does not have.
    """
    found = _tensors(file)
    missing = sorted(found.keys() - file.tensors.keys())
    if missing:
        raise ModelBroken(f"{file.path} lacks the tensor {missing[0]}")
    unknown = sorted(file.tensors.keys() - found.keys() - {ROPE_FACTORS})
    if unknown:
        raise UnsupportedModel(
            f"{file.path}: tensor {unknown[0]} is unknown in a {file.architecture} model"
        )
    return found


def _tensors(file: GGUF) -> dict[str, str]:
    """All tensors of the architecture, with what is optional as the file has it."""
    found = {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in _WHOLE.items()}
    if "output.weight" in file.tensors:
        found["output.weight"] = "lm_head.weight"
    parts = {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in _IN_BLOCK.items()}
    if file.architecture == "qwen3":
        parts |= {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in _NORMS.items()}
    for name in _biased(file):
        parts[f"{name}.bias"] = f"{_IN_BLOCK[name]}.bias"
    for block in range(int(file.required("block_count"))):
        found |= {f"blk.{block}.{a}": f"model.layers.{block}.{b}" for a, b in parts.items()}
    return found


def _biased(file: GGUF) -> tuple[str, ...]:
    """Projections that have a bias: qwen2's always, llama's where the file has one."""
    if file.architecture == "qwen2":
        return ("attn_q", "attn_k", "attn_v")
    if file.architecture == "llama" and "blk.0.attn_q.bias" in file.tensors:
        return ("attn_q", "attn_k", "attn_v", "attn_output")
    return ()


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
        "rms_norm_eps": shortest(file.required("attention.layer_norm_rms_epsilon")),
        "vocab_size": _vocabulary_size(file),
        "max_position_embeddings": int(file.required("context_length")),
        "rope_theta": shortest(file.setting("rope.freq_base", 10000.0)),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "hidden_act": "silu",
    }
    if ends:
        found["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    if file.architecture == "llama" and _biased(file):
        found["attention_bias"] = True
    scaling = rope_scaling(file, rope_factors)
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
