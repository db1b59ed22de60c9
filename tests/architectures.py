"""Tiny models of mlx-lm's architectures, of one set of sizes and what some need besides."""

from __future__ import annotations

import copy
import importlib
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm.models
from mlx.utils import tree_flatten, tree_map_with_path

VOCABULARY = 400
WINDOW = 24
"""Tokens that a layer with a window sees, or a chunk."""

# Whatever of these an architecture's settings have; names are those of mlx-lm's ModelArgs.
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "embedding_size": VOCABULARY,
    "num_vocab": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
    **dict.fromkeys(["hidden_size", "n_embd", "d_model", "hidden_dim", "model_dim"], 48),
    **dict.fromkeys(["num_hidden_layers", "n_layer", "num_layers", "n_layers"], 2),
    **dict.fromkeys(["num_attention_heads", "n_head", "n_heads", "num_heads"], 4),
    **dict.fromkeys(["num_key_value_heads", "n_kv_heads", "num_attention_groups"], 2),
    **dict.fromkeys(["intermediate_size", "n_inner", "mlp_hidden_size", "ffn_hidden_size"], 64),
    **dict.fromkeys(["intermediate_size_mlp", "ff_intermediate_size"], 64),
    **dict.fromkeys(["moe_intermediate_size", "shared_expert_intermediate_size"], 32),
    **dict.fromkeys(["shared_intermediate_size", "expert_ffn_hidden_size"], 32),
    **dict.fromkeys(["max_position_embeddings", "n_positions", "n_ctx", "block_size"], 512),
    **dict.fromkeys(["rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon"], 1e-5),
    "layernorm_epsilon": 1e-5,
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts"], 4),
    **dict.fromkeys(["num_experts_per_tok", "num_experts_per_token", "moe_topk"], 2),
    **dict.fromkeys(["mlp_ratio", "cla_share_factor"], 2),
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
    **dict.fromkeys(["sliding_window", "sliding_window_size", "window_size"], WINDOW),
    **dict.fromkeys(["attention_window_size", "attention_chunk_size"], WINDOW),
    "loop_window_size": WINDOW,
    "sliding_window_pattern": 2,
    **dict.fromkeys(["conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim"], 4),
    **dict.fromkeys(["state_size", "ssm_state_size", "mamba_d_state"], 16),
    **dict.fromkeys(["mamba_n_heads", "mamba_num_heads"], 6),
    **dict.fromkeys(["mamba_d_head", "mamba_head_dim"], 16),
    **dict.fromkeys(["mamba_n_groups", "n_groups"], 1),
    **dict.fromkeys(["mamba_conv_bias", "use_conv_bias", "conv_bias"], True),
    "mamba_proj_bias": False,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    **dict.fromkeys(["linear_key_head_dim", "linear_value_head_dim"], 16),
    "full_attention_interval": 2,
    "layer_group_size": 2,
    "group_norm_size": 4,
    **dict.fromkeys(["index_head_dim", "index_n_heads"], 16),
    "index_topk": 8,
    "conv_L_cache": 3,
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
_ROPE = {"rope_theta": 1e4, "type": "default", "rope_type": "default"}
_SCALED_ROPE = {
    **_ROPE,
    "llama_4_scaling_beta": 0.1,
    "original_max_position_embeddings": 512,
}
_WINDOWED = {"layer_types": ["sliding_attention", "full_attention"]}
_SHARED_KEYS = {
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
_KIMI_LINEAR = {
    "linear_attn_config": {
        "kda_layers": [1],
        "full_attn_layers": [2],
        "num_heads": 4,
        "head_dim": 16,
        "short_conv_kernel_size": 4,
    },
    "mla_use_nope": True,
}
_LFM2 = {
    "block_dim": 48,
    "block_multiple_of": 16,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": True,
    "block_ff_dim": 64,
    "layer_types": ["conv", "full_attention"],
}
_LONGCAT = {
    "attention_method": "MLA",
    "zero_expert_type": "identity",
    "zero_expert_num": 2,
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
}
_QWEN3_5 = {"rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5}}
# What some need besides.
MORE: dict[str, dict[str, Any]] = {
    "afm7": {"num_kv_reuse_layers": 1, "num_kv_heads": 2, "hidden_dim_scale_factor": 1.0},
    "baichuan_m1": {"sliding_window_layers": [0], "conv_window": 2},
    "cohere2": {"head_dim": 12},
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
    "deepseek_v41": {
        "head_dim": 32,
        "index_head_dim": 32,
        "o_groups": 2,
        "o_lora_rank": 16,
        "compress_ratios": [0, 4],
        "kv_source_layer_ids": [1],
        "index_source_layer_ids": [1],
        "rms_norm_eps": 1e-6,
        "scoring_func": "sqrtsoftplus",
    },
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1},
    "exaone": {"head_dim": 12},
    "exaone4": {"sliding_window_pattern": "LG"},
    "exaone_moe": {**_WINDOWED, "is_moe_layer": [False, True]},
    "falcon_h1": {
        "mamba_d_ssm": 96,
        "attention_out_multiplier": 1.0,
        "key_multiplier": 1.0,
        "lm_head_multiplier": 1.0,
        "mlp_multipliers": [1.0, 1.0],
        "ssm_in_multiplier": 1.0,
        "ssm_multipliers": [1.0] * 5,
        "ssm_out_multiplier": 1.0,
    },
    "gemma2": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3n": {
        **_SHARED_KEYS,
        "rope_local_base_freq": 1e4,
        "final_logit_softcapping": 30.0,
        "activation_sparsity_pattern": [0.0] * 4,
        "altup_num_inputs": 2,
        "altup_coef_clip": 120.0,
        "altup_correct_scale": True,
        "altup_active_idx": 0,
        "laurel_rank": 8,
    },
    "gemma4_text": {**_SHARED_KEYS, "global_head_dim": 16},
    "glm_moe_dsa": {"rope_parameters": _ROPE},
    "gpt_oss": _WINDOWED,
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "hunyuan": {"rope_scaling": {"factor": 1.0, "alpha": 1.0, "type": "dynamic"}},
    "jamba": {
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_expand": 2,
    },
    "kimi_k3": {**_KIMI_LINEAR, "hidden_act": "situ"},
    "kimi_linear": {**_KIMI_LINEAR, "model_max_length": 512},
    "lfm2": _LFM2,
    "lfm2_moe": {**_LFM2, "use_expert_bias": True, "num_dense_layers": 1},
    "lille-130m": {"n_embd": 96},
    "llama4": {
        "num_hidden_layers": 4,
        "interleave_moe_layer_step": 2,
        "num_experts_per_tok": 1,
    },
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": {
        **_LONGCAT,
        "ngram_vocab_size_ratio": 2,
        "emb_neighbor_num": 3,
        "emb_split_num": 2,
    },
    "mamba": {"time_step_rank": 3},
    "mamba2": {"num_heads": 6, "time_step_limit": [0.001, 100.0], "time_step_rank": 3},
    "mellum": {
        **_WINDOWED,
        "rope_parameters": {"sliding_attention": _ROPE, "full_attention": _ROPE},
    },
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [1, 0],
        "moe_layer_freq": [0, 1],
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "swa_rope_theta": 1e4,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 16,
        "swa_v_head_dim": 16,
    },
    "minicpm3": {"rope_scaling": {**_LONG, "long_factor": [1.0] * 8, "short_factor": [1.0] * 8}},
    "minimax": {"shared_intermediate_size": 32, "rotary_dim": 8},
    "minimax_m3_vl": {
        "moe_layer_freq": [0, 1],
        "dense_intermediate_size": 64,
        "index_n_heads": 2,
        "index_block_size": 4,
        "index_topk_blocks": 4,
        "sparse_attention_freq": [0, 1],
        "layer_types": None,
    },
    "ministral3": {"rope_parameters": _SCALED_ROPE},
    "mistral4": {"rope_parameters": _SCALED_ROPE},
    "muse_spark": {
        **_WINDOWED,
        "post_norm_eps": 1e-5,
        "rope_parameters": _ROPE,
        "layer_rope_theta": [1e4, 0.0],
        "final_logit_softcapping": 30.0,
        "output_multiplier": 1.0,
        "moe_hidden_size": 32,
        "num_shared_experts": 0,
    },
    "nemotron-nas": {"block_configs": [_BLOCK, _BLOCK]},
    "nemotron_h": {"hybrid_override_pattern": ["M", "*", "-"], "layer_types": None},
    "olmo3": _WINDOWED,
    "olmo_hybrid": {
        "layer_types": ["linear_attention", "full_attention"],
        "linear_allow_neg_eigval": True,
    },
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
    "phi3small": {
        "vocab_size": 100_352,  # it rules out tokens of this vocabulary by their numbers
        "dense_attention_every_n_layers": 2,
        "gegelu_limit": 20.0,
    },
    "phixtral": {"rotary_dim": 8},
    "plamo2": {"hidden_size_per_head": 16, "full_attention_idx": [1], "mamba_step": 2},
    "qwen": {"kv_channels": 12},
    "qwen3_5": {**_QWEN3_5, "num_experts": 0},
    "qwen3_5_moe": _QWEN3_5,
    "recurrent_gemma": {
        "num_hidden_layers": 3,
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "rwkv7": {
        **dict.fromkeys(["a_low_rank_dim", "v_low_rank_dim"], 8),
        **dict.fromkeys(["gate_low_rank_dim", "decay_low_rank_dim"], 8),
    },
    "spark2_5": {
        **_WINDOWED,
        "rope_parameters": {"sliding_attention": _ROPE, "full_attention": _ROPE},
        "hidden_act": "gelu",
    },
    "step3p5": {**_WINDOWED, "moe_num_experts": 4, "moe_top_k": 2, "share_expert_dim": 32},
}
# The language model inside those that wrap one.
INSIDE = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n",
    "gemma4": "gemma4_text",
    "kimi_k25": "deepseek_v3",
    "kimi_k3": "kimi_k3",
    "kimi_vl": "deepseek_v3",
    "lfm2-vl": "lfm2",
    "llama4": "llama4",
    "minimax_m3_vl": "minimax_m3_vl",
    "mistral3": "llama",
    "muse_spark": "muse_spark",
    "pixtral": "llama",
    "qwen2_vl": "qwen2",
    "qwen3_5": "qwen3_5",
    "qwen3_5_moe": "qwen3_5_moe",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
}
# The same, where settings allow other layers than those that keep all keys.
VARIANTS: dict[str, dict[str, Any]] = {
    "afmoe+windows": _WINDOWED,
    "gear+windows": {
        "num_hidden_layers": 3,
        "layer_types": ["conv_mixer", "sliding_attention", "full_attention"],
    },
    "laguna+windows": _WINDOWED,
    "llama+windows": _WINDOWED,
    "ministral3+windows": _WINDOWED,
    "muse_glimmer+windows": _WINDOWED,
}
# What cannot run here.
NOT_BUILT = {
    "bitnet": "its layers are kernels for Metal",
    "muse_spark": "its attention is a kernel for Metal",
    "olmo": "imports `hf_olmo`, a library of its own",
    "prism_hadamard_qwen35": "its weights are packed in 2 bits, with a manifest of their own",
}
_MODEL = re.compile(r"^(class Model[(]|from .* import .*\bModel\b)", re.M)
_DECAY = ("A_log", "recurrent_param", "w_lora.lora.2.bias")
"""How fast a state forgets, by the names of Mamba and gated delta, Griffin, and RWKV."""


def architectures() -> list[str]:
    """The names of mlx-lm's modules that hold a model."""
    folder = Path(mlx_lm.models.__file__).parent
    sources = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    return sorted(name for name, text in sources.items() if _MODEL.search(text))


def build(name: str) -> Any:
    """A random float32 model, its weights large enough for attention to matter.

    ``name``: an architecture, or one of ``VARIANTS``.
    """
    architecture = name.partition("+")[0]
    module: Any = importlib.import_module(f"mlx_lm.models.{architecture}")
    known = {field.name for field in fields(module.ModelArgs)}
    config = {key: value for key, value in SIZES.items() if key in known}
    config |= {"model_type": architecture, **MORE.get(architecture, {}), **VARIANTS.get(name, {})}
    if architecture in INSIDE:
        inside = INSIDE[architecture]
        config["text_config"] = {**SIZES, **MORE.get(inside, {}), "model_type": inside}
    mx.random.seed(0)
    model = module.Model(module.ModelArgs.from_dict(copy.deepcopy(config)))
    assert sum(p.size for _, p in tree_flatten(model.parameters())) < 6_000_000
    model.update(tree_map_with_path(_scaled, model.parameters()))
    mx.eval(model.parameters())
    model.eval()
    return model


def _scaled(name: str, parameter: mx.array) -> mx.array:
    noise = 0.1 * mx.random.normal(parameter.shape)
    if name.endswith(_DECAY):
        return parameter + noise - 4  # a state that forgets slowly
    if parameter.ndim < 2 or "embed" in name or "wte" in name:
        return parameter + noise
    return 2.0 * parameter + 0.1 * noise if mx.any(parameter) else 5 * noise
