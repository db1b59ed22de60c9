"""Tiny random models and tokenizers, and GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as Type
from mlx.utils import tree_flatten, tree_map
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CORPUS = [
    "The quick brown fox jumps over the lazy dog, doesn't it? They're here; I'LL see 12345.",
    "def main():\n    return {'a': 1, 'b': [2]}\n\n\n# naïve façade — Straße Ελλάδα 漢 \U0001f600",
    "  leading spaces,\ttabs\r\nand\n\nnewlines   trailing   ",
    "HTTPServer camelCase XMLHttpRequest iPhone's O'Neil's 3.14159 1,000,000 http://a/b/c",
]
TEXTS = [
    *CORPUS,
    "",
    " ",
    "\n\n \n",
    "e\u0301 is not \u00e9",
    "IT'S it's It'S  'tis 007 ½ ٣٤",
    "<|im_start|>user\nhi<|im_end|>",
    "\u017f'\u017f don'\u017f",
]
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "rope_theta": 10000.0},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1000000.0},
    "qwen3": {"model_type": "qwen3", "rope_theta": 1000000.0, "head_dim": 32},
}


def byte_level(pre: str) -> Tokenizer:
    """A small tokenizer in the manner of the models that ``tokenizer.ggml.pre`` stands for."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    split, byte = pre_tokenizers.Split, pre_tokenizers.ByteLevel
    if pre == "gpt-2":
        tokenizer.pre_tokenizer = byte(add_prefix_space=False)
    elif pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte(add_prefix_space=False)])
    else:
        cut = split(Regex(_pattern(pre)), "isolated")
        whole = byte(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, whole])
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


def _pattern(pre: str) -> str:
    """Qwen's and Llama 3's patterns as transformers has them."""
    if pre == "qwen2":
        from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

        return str(PRETOKENIZE_REGEX)
    from transformers.convert_slow_tokenizer import TikTokenConverter

    assert pre == "llama-bpe"
    return str(inspect.signature(TikTokenConverter).parameters["pattern"].default)


def config_of(architecture: str, vocabulary: int, **changes: Any) -> dict[str, Any]:
    return {
        **CONFIGS[architecture],
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-05,
        "vocab_size": vocabulary,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        **changes,
    }


def random_model(config: dict[str, Any], seed: int = 0) -> Any:
    """A model of ``config`` with float32 weights large enough that every one of them matters."""
    from mlx_lm.utils import _get_classes

    model_class, arguments = _get_classes(config)
    mx.random.seed(seed)
    model = model_class(arguments.from_dict(config))
    # norms and biases start as constants, which no mistake would change
    model.update(tree_map(lambda p: 4 * p + mx.random.normal(p.shape) * 0.1, model.parameters()))
    mx.eval(model.parameters())
    model.eval()
    return model


def weights_of(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.array(value) for name, value in tree_flatten(model.parameters())}


def save_folder(
    folder: Path, config: dict[str, Any], tokenizer: Tokenizer, model: Any | None = None
) -> Path:
    """Write an mlx-lm folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model = random_model(config) if model is None else model
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": 2}), "utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return folder


def write_gguf(
    path: Path,
    config: dict[str, Any],
    weights: dict[str, np.ndarray[Any, Any]],
    tokenizer: Tokenizer,
    pre: str = "smollm",
    quantized: Type = Type.F32,
    extra: dict[str, Any] | None = None,
    raw: dict[str, tuple[np.ndarray[Any, Any], Type]] | None = None,
) -> Path:
    """Write a GGUF file: matrices as ``quantized``, the rest float32, q and k of llama permuted.

    ``raw``: tensors that are written as these bytes, (rows, bytes of a row).
    """
    architecture = config["model_type"]
    writer = gguf.GGUFWriter(path, architecture)
    _write_settings(writer, config)
    _write_tokens(writer, tokenizer, pre)
    for key, value in (extra or {}).items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    for name, data in weights.items():
        kind = quantized if data.ndim > 1 else Type.F32
        packed = gguf.quants.quantize(np.ascontiguousarray(data), kind)
        packed, kind = (raw or {}).get(name, (packed, kind))
        if architecture == "llama":
            packed = np.ascontiguousarray(_permuted(name, packed, config))
        writer.add_tensor(gguf_name(name), packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_rows(name: str, rows: int = 8, width: int = 512, seed: int = 0) -> Any:
    """Random bytes of a GGML format, (rows, bytes of a row), with scales that are sane numbers."""
    elements, nbytes = gguf.GGML_QUANT_SIZES[Type[name]]
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (rows, width // elements, nbytes), np.uint8)
    halves = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    for at in halves.get(name, (0,)):
        scales = random.uniform(-1e-2, 1e-2, blocks.shape[:2]).astype("<f2")
        blocks[..., at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def gguf_name(name: str) -> str:
    for ours, theirs in {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers": "blk",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }.items():
        name = name.replace(ours, theirs)
    return name


def _permuted(name: str, data: Any, config: dict[str, Any]) -> Any:
    """What llama.cpp's converter does to q and k: each head's halves become pairs."""
    heads = {
        "q_proj": config["num_attention_heads"],
        "k_proj": config["num_key_value_heads"],
    }.get(name.split(".")[-2])
    if heads is None:
        return data
    halves = data.reshape(heads, 2, data.shape[0] // heads // 2, *data.shape[1:])
    return halves.swapaxes(1, 2).reshape(data.shape)


def _write_settings(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])


def _write_tokens(writer: gguf.GGUFWriter, tokenizer: Tokenizer, pre: str) -> None:
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    types = [gguf.TokenType.CONTROL if t in SPECIAL else gguf.TokenType.NORMAL for t in tokens]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
