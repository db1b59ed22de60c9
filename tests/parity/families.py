"""Tiny float32 models of many families, with weights so large that a wrong token shows.

A default-initialised tiny model hardly looks at what came before: a wrong cached token changed
the answer in 2 of 16 trials. Each family says by how much its weights are scaled, and
``test_controls`` proves that mistakes show then.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map_with_path
from models.tiny import byte_level, save_folder

CONTEXT = 4096
WIDE = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
"""Heads that are wide enough for KV in a few bits."""
VOCABULARY = 400
ENDS = [2, *range(300, 316)]
"""End tokens: some common ones are among them, so that answers end at all lengths."""

_PLAIN: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 10000.0,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}
WINDOW = 24
"""Tokens that a layer with a window sees, or a chunk."""
_WINDOWED: dict[str, Any] = {
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
}
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_GATED_DELTA: dict[str, Any] = {
    "head_dim": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
}
_MAMBA2: dict[str, Any] = {
    "mamba_n_heads": 6,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
    "mamba_proj_bias": False,
    "mamba_conv_bias": True,
}
_GRANITE: dict[str, Any] = {
    "logits_scaling": 1.0,
    "attention_multiplier": 0.25,
    "embedding_multiplier": 2.0,
    "residual_multiplier": 0.5,
    "attention_bias": False,
    "mlp_bias": False,
}
_DECAY = ("A_log", "recurrent_param", "w_lora.lora.2.bias")
"""How fast a state forgets, by the names of Mamba and gated delta, Griffin, and RWKV."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models: the config of a tiny one, and the scale of its matrices.

    ``rewindable``: every layer keeps all of its keys. ``plain``: it has what ``_PLAIN`` sets.
    """

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    scale: float = 2.0
    rewindable: bool = True
    plain: bool = True

    def full_config(self) -> dict[str, Any]:
        """What stands in config.json."""
        base = _PLAIN if self.plain else {"max_position_embeddings": CONTEXT}
        return {
            "model_type": self.name,
            "vocab_size": VOCABULARY,
            "tie_word_embeddings": False,
            "bos_token_id": 1,
            "pad_token_id": 0,
            **base,
            **self.config,
        }

    def model(self, seed: int = 0) -> Any:
        """A random model of this family, evaluated."""
        from mlx_lm.utils import _get_classes

        config = self.full_config()
        model_class, arguments = _get_classes(config)
        mx.random.seed(seed)
        model = model_class(arguments.from_dict(config))
        model.update(tree_map_with_path(self._scaled, model.parameters()))
        mx.eval(model.parameters())
        model.eval()
        return model

    def _scaled(self, name: str, parameter: mx.array) -> mx.array:
        """Matrices scaled; what starts as a constant is given a little of everything."""
        noise = 0.1 * mx.random.normal(parameter.shape)
        if name.endswith(_DECAY):
            return parameter + noise - 4  # a state that forgets slowly
        if parameter.ndim < 2 or "embed" in name or "wte" in name:
            return parameter + noise
        if not mx.any(parameter):
            return 5 * noise
        return self.scale * parameter

    def save(self, folder: Path, seed: int = 0) -> Path:
        """Write a model folder, to be loaded as any other."""
        config = self.full_config()
        save_folder(folder, config, byte_level("smollm"), self.model(seed))
        config["eos_token_id"] = ENDS
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        return folder


REWINDABLE = [
    Family("llama"),
    Family("mistral", {"head_dim": 16}),
    Family("qwen2"),
    Family("qwen3", {"head_dim": 16}),
    Family("phi3"),
    Family("olmo2"),
    Family("smollm3", {"num_hidden_layers": 4}),
    Family("gemma", {"head_dim": 16}),
    Family("gemma2", {"head_dim": 16}),
    Family("granite", _GRANITE),
    Family("cohere", {"logit_scale": 1.0, "use_qk_norm": True}),
    Family("starcoder2"),
    Family(
        "stablelm", {"use_qkv_bias": True, "partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5}
    ),
    Family("gpt_neox", {"layer_norm_eps": 1e-5, "rotary_emb_base": 10000, "rotary_pct": 0.5}),
    Family(
        "glm4",
        {"attention_bias": True, "head_dim": 16, "partial_rotary_factor": 0.5},
    ),
    Family("internlm2", {"bias": True}),
    Family("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    Family("olmoe", {**_EXPERTS}),
    Family(
        "qwen3_moe",
        {**_EXPERTS, "head_dim": 16, "decoder_sparse_step": 1, "mlp_only_layers": []},
    ),
    Family("deepseek_v3", _LATENT),
    Family(  # besides the latents, the keys by which an indexer chooses among them
        "deepseek_v32", {**_LATENT, "index_head_dim": 16, "index_n_heads": 16, "index_topk": 8}
    ),
]

FORGETFUL = [
    # --- windows
    Family(
        "gemma3_text",
        {
            "head_dim": 16,
            "num_key_value_heads": 1,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 2,
        },
        rewindable=False,
    ),
    Family(
        "gemma4_text",  # its last two layers take the keys of the first two
        {
            "num_hidden_layers": 4,
            "num_kv_shared_layers": 2,
            "head_dim": 16,
            "global_head_dim": 16,
            "num_key_value_heads": 1,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": VOCABULARY,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 2,
        },
        rewindable=False,
    ),
    Family(
        "gpt_oss",
        {**_WINDOWED, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
        rewindable=False,
    ),
    Family("olmo3", _WINDOWED, rewindable=False),
    Family(
        "ministral3",
        {
            **_WINDOWED,
            "head_dim": 16,
            "rope_parameters": {
                "rope_theta": 10000.0,
                "type": "default",
                "llama_4_scaling_beta": 0.1,
                "original_max_position_embeddings": CONTEXT,
            },
        },
        rewindable=False,
    ),
    Family(
        "cohere2",
        {
            "head_dim": 12,
            "logit_scale": 1.0,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 2,
        },
        rewindable=False,
    ),
    Family(
        "exaone4",
        {
            **_WINDOWED,
            "head_dim": 16,
            "rope_scaling": None,
            "sliding_window_pattern": "LG",
        },
        rewindable=False,
    ),
    Family(
        "llama4",
        {
            "text_config": {
                **_PLAIN,
                "model_type": "llama4_text",
                "vocab_size": VOCABULARY,
                "num_hidden_layers": 4,
                "head_dim": 16,
                "attention_bias": False,
                "attention_chunk_size": WINDOW,
                "interleave_moe_layer_step": 2,
                "intermediate_size_mlp": 64,
                "num_local_experts": 4,
                "num_experts_per_tok": 1,
                "rope_scaling": None,
                "use_qk_norm": True,
            }
        },
        rewindable=False,
    ),
    # --- states, and layers that attend
    Family(
        "lfm2",
        {
            "norm_eps": 1e-5,
            "conv_bias": True,
            "conv_L_cache": 3,
            "block_dim": 48,
            "block_multiple_of": 16,
            "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": True,
            "block_ff_dim": 64,
            "layer_types": ["conv", "full_attention"],
        },
        rewindable=False,
    ),
    Family(
        "qwen3_next",
        {
            **_EXPERTS,
            **_GATED_DELTA,
            "decoder_sparse_step": 1,
            "shared_expert_intermediate_size": 32,
            "mlp_only_layers": [],
            "partial_rotary_factor": 0.5,
        },
        rewindable=False,
    ),
    Family(
        "qwen3_5",
        {
            **_GATED_DELTA,
            "rope_parameters": {
                "type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            },
        },
        rewindable=False,
    ),
    Family(
        "kimi_linear",
        {
            "head_dim": 16,
            "kv_lora_rank": 32,
            "qk_rope_head_dim": 16,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
            "mla_use_nope": True,
            "model_max_length": CONTEXT,
            "num_experts": 4,
            "num_experts_per_token": 2,
            "num_shared_experts": 1,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
            "linear_attn_config": {
                "kda_layers": [1],
                "full_attn_layers": [2],
                "num_heads": 4,
                "head_dim": 16,
                "short_conv_kernel_size": 4,
            },
        },
        rewindable=False,
    ),
    Family(
        "bailing_moe_linear",
        {
            **_EXPERTS,
            "head_dim": 16,
            "num_shared_experts": 1,
            "first_k_dense_replace": 1,
            "layer_group_size": 2,
            "group_norm_size": 4,
            "use_qk_norm": True,
            "partial_rotary_factor": 0.5,
            "topk_group": 1,
        },
        rewindable=False,
    ),
    Family(
        "jamba",
        {
            "attn_layer_offset": 1,
            "attn_layer_period": 2,
            "expert_layer_offset": 1,
            "expert_layer_period": 2,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "mamba_d_conv": 4,
            "mamba_d_state": 16,
            "mamba_expand": 2,
        },
        scale=1.5,
        rewindable=False,
    ),
    Family(
        "nemotron_h",
        {
            "layer_norm_epsilon": 1e-5,
            "head_dim": 16,
            "hybrid_override_pattern": ["M", "*", "-"],
            "mamba_num_heads": 6,
            "mamba_head_dim": 16,
            "mamba_proj_bias": False,
            "ssm_state_size": 16,
            "conv_kernel": 4,
            "n_groups": 1,
            "use_bias": False,
            "use_conv_bias": True,
            "attention_bias": False,
            "mlp_bias": False,
        },
        rewindable=False,
    ),
    Family(
        "granitemoehybrid",
        {
            **_GRANITE,
            **_MAMBA2,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 32,
        },
        rewindable=False,
    ),
    Family(
        "recurrent_gemma",
        {
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "attention_bias": False,
            "conv1d_width": 4,
            "logits_soft_cap": 30.0,
            "attention_window_size": WINDOW,
            "block_types": ["recurrent", "recurrent", "attention"],
        },
        rewindable=False,
    ),
    # --- states alone
    Family(
        "mamba",
        {
            "hidden_size": 48,
            "intermediate_size": 64,
            "state_size": 16,
            "num_hidden_layers": 2,
            "conv_kernel": 4,
            "use_bias": False,
            "use_conv_bias": True,
            "time_step_rank": "auto",
        },
        rewindable=False,
        plain=False,
    ),
    Family(
        "mamba2",
        {
            "num_heads": 6,
            "head_dim": 16,
            "hidden_size": 48,
            "intermediate_size": 64,
            "state_size": 16,
            "num_hidden_layers": 2,
            "layer_norm_epsilon": 1e-5,
            "conv_kernel": 4,
            "n_groups": 1,
            "use_bias": False,
            "use_conv_bias": True,
            "time_step_limit": [0.001, 100.0],
            "time_step_rank": "auto",
        },
        rewindable=False,
        plain=False,
    ),
    Family(
        "rwkv7",
        {
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "norm_eps": 1e-5,
            "head_dim": 16,
            "a_low_rank_dim": 8,
            "v_low_rank_dim": 8,
            "gate_low_rank_dim": 8,
            "decay_low_rank_dim": 8,
        },
        rewindable=False,
        plain=False,
    ),
    # --- a state and keys in each layer
    Family(
        "falcon_h1",
        {
            **_MAMBA2,
            "head_dim": 16,
            "mamba_d_ssm": 96,
            "mamba_expand": 2,
        },
        scale=1.3,
        rewindable=False,
    ),
    Family(
        "baichuan_m1",
        {"sliding_window": WINDOW, "sliding_window_layers": [0], "conv_window": 2},
        rewindable=False,
    ),
]
FAMILIES = {family.name: family for family in [*REWINDABLE, *FORGETFUL]}
