"""Tiny models of as many of mlx-lm's architectures as one set of sizes will build."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map_with_path

VOCABULARY = 400

# Whatever of these an architecture's settings have; names are those of mlx-lm's ModelArgs.
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "embedding_size": VOCABULARY,
    "num_vocab": VOCABULARY,
    **dict.fromkeys(["hidden_size", "n_embd", "d_model", "hidden_dim", "model_dim"], 48),
    **dict.fromkeys(["num_hidden_layers", "n_layer", "num_layers", "n_layers"], 2),
    **dict.fromkeys(["num_attention_heads", "n_head", "n_heads", "num_heads"], 4),
    **dict.fromkeys(["num_key_value_heads", "n_kv_heads"], 2),
    **dict.fromkeys(["intermediate_size", "n_inner", "mlp_hidden_size"], 64),
    **dict.fromkeys(["moe_intermediate_size", "shared_expert_intermediate_size"], 32),
    **dict.fromkeys(["max_position_embeddings", "n_positions", "n_ctx", "block_size"], 512),
    **dict.fromkeys(["rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon"], 1e-5),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts"], 4),
    **dict.fromkeys(["num_experts_per_tok", "moe_topk", "mlp_ratio", "cla_share_factor"], 2),
    **dict.fromkeys(["n_shared_experts", "num_shared_experts", "num_shared_expert"], 1),
    **dict.fromkeys(["n_group", "topk_group", "first_k_dense_replace", "moe_layer_freq"], 1),
    **dict.fromkeys(["qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "head_dim"], 16),
    **dict.fromkeys(["kv_lora_rank", "q_lora_rank"], 32),
    **dict.fromkeys(["attention_bias", "mlp_bias", "use_bias", "bias", "use_qkv_bias"], False),
    **dict.fromkeys(["tie_word_embeddings", "use_cla", "use_mixed_mlp_moe", "post_norm"], False),
    **dict.fromkeys(["use_qk_norm", "qk_norm", "norm_topk_prob"], True),
    **dict.fromkeys(["logit_scale", "logits_scaling", "embedding_multiplier", "scale_emb"], 1.0),
    **dict.fromkeys(["residual_multiplier", "routed_scaling_factor", "scale_depth"], 1.0),
    **dict.fromkeys(["partial_rotary_factor", "rotary_pct"], 0.5),
    **dict.fromkeys(["rope_theta", "rotary_emb_base"], 10000.0),
    "attention_multiplier": 0.25,
    "dim_model_base": 48,
    "query_pre_attn_scalar": 16.0,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "no_rope_layers": [1, 1],
    "no_rope_layer_interval": 2,
    "layer_types": ["full_attention", "full_attention"],
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "hidden_act": "silu",
    "rope_scaling": None,
    "n_shared_head": 2,
}

_LONG = {"factor": 1.0, "original_max_position_embeddings": 512, "type": "longrope"}
_BLOCK = {
    "attention": {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False},
    "ffn": {"ffn_mult": 1.0, "no_op": False, "replace_with_linear": False},
}
# What some need besides.
MORE: dict[str, dict[str, Any]] = {
    "afm7": {"num_kv_reuse_layers": 1, "num_kv_heads": 2, "hidden_dim_scale_factor": 1.0},
    "dbrx": {
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
    },
    "deepseek_v2": {
        "rope_scaling": {
            "type": "yarn",
            "factor": 1.0,
            "original_max_position_embeddings": 512,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "beta_fast": 32,
            "beta_slow": 1,
        }
    },
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1},
    "exaone": {"head_dim": 12},
    "gemma2": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gptj": {"rotary_dim": 8},
    "hunyuan": {"rope_scaling": {"factor": 1.0, "alpha": 1.0, "type": "dynamic"}},
    "minicpm3": {"rope_scaling": {**_LONG, "long_factor": [1.0] * 8, "short_factor": [1.0] * 8}},
    "minimax": {"shared_intermediate_size": 32, "rotary_dim": 8},
    "ministral3": {
        "rope_parameters": {
            "rope_theta": 1e4,
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 512,
            "type": "default",
        }
    },
    "nemotron-nas": {"block_configs": [_BLOCK, _BLOCK]},
    "openelm": {
        "num_transformer_layers": 2,
        "num_query_heads": [4, 4],
        "num_kv_heads": [2, 2],
        "ffn_multipliers": [1.0, 1.0],
        "ffn_with_glu": True,
        "normalize_qk_projections": True,
        "share_input_output_layers": True,
        "ffn_dim_divisor": 8,
    },
    "phixtral": {"rotary_dim": 8},
    "qwen": {"kv_channels": 12},
}
# The language model inside those that wrap one.
INSIDE = {
    "kimi_k25": "deepseek_v3",
    "kimi_vl": "deepseek_v3",
    "mistral3": "llama",
    "pixtral": "llama",
    "qwen2_vl": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
}


def build(name: str) -> Any:
    """A random float32 model, its weights large enough for attention to matter."""
    module: Any = importlib.import_module(f"mlx_lm.models.{name}")
    known = {field.name for field in fields(module.ModelArgs)}
    config = {key: value for key, value in SIZES.items() if key in known}
    config |= {"model_type": name, **MORE.get(name, {})}
    if name in INSIDE:
        config["text_config"] = {**SIZES, "model_type": INSIDE[name]}
    mx.random.seed(0)
    model = module.Model(module.ModelArgs.from_dict(config))
    assert sum(p.size for _, p in tree_flatten(model.parameters())) < 3_000_000
    model.update(tree_map_with_path(_scaled, model.parameters()))
    mx.eval(model.parameters())
    model.eval()
    return model


def _scaled(name: str, parameter: mx.array) -> mx.array:
    noise = 0.1 * mx.random.normal(parameter.shape)  # some start as zeros
    if parameter.ndim < 2 or "embed" in name or "wte" in name:
        return parameter + noise
    return 2.0 * parameter + 0.1 * noise
