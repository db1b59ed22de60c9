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


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models: the config of a tiny one, and the scale of its matrices."""

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
        if name.endswith("A_log"):
            return parameter + noise - 4  # a state that forgets slowly
        if parameter.ndim < 2 or "embed" in name or "wte" in name:
            return parameter + noise
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
    Family(
        "granite",
        {
            "logits_scaling": 1.0,
            "attention_multiplier": 0.25,
            "embedding_multiplier": 2.0,
            "residual_multiplier": 0.5,
            "attention_bias": False,
            "mlp_bias": False,
        },
    ),
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
]

FORGETFUL = [
    Family(
        "gemma3_text",
        {
            "head_dim": 16,
            "num_key_value_heads": 1,
            "sliding_window": 24,
            "sliding_window_pattern": 2,
        },
        rewindable=False,
    ),
    Family(
        "gpt_oss",
        {
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 24,
            "layer_types": ["sliding_attention", "full_attention"],
            "intermediate_size": 64,
        },
        rewindable=False,
    ),
    Family(
        "olmo3",
        {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]},
        rewindable=False,
    ),
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
        "qwen3_next",
        {
            **_EXPERTS,
            "head_dim": 16,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 4,
            "decoder_sparse_step": 1,
            "shared_expert_intermediate_size": 32,
            "mlp_only_layers": [],
            "partial_rotary_factor": 0.5,
            "full_attention_interval": 2,
        },
        rewindable=False,
    ),
]
FAMILIES = {family.name: family for family in [*REWINDABLE, *FORGETFUL]}
