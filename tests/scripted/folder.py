"""Folders of scripted models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from models.tiny import byte_level
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from mlxnb.models.resolve import resolve
from mlxnb.sessions.local import LocalEngine

END = "<|im_end|>"
ROLE = "<|im_start|>assistant"
TAGS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
]

# As Qwen3 does it: tools in the system text, thinking of earlier answers left out.
QWEN = """\
{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{% endif %}
{{- '# Tools\n<tools>' }}
{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{% endfor %}
{{- '\n</tools>\nAnswer with <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' + message.content }}
{%- for tool_call in message.tool_calls or [] %}
{%- set tool_call = tool_call.function %}
{{- '\n<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
{{- tool_call.arguments | tojson }}{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""

# As DeepSeek-R1 does it: the prompt opens the thought.
THINKING = QWEN.replace("assistant\n' }}{% endif %}", "assistant\n<think>\n' }}{% endif %}")


def tokenizer_of(template: str, pre: str = "smollm") -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with tags for thinking and tool calls."""
    tokenizer = byte_level(pre)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, chat_template=template
    )


def scripted_folder(
    folder: Path,
    answers: Sequence[str | Sequence[int]],
    template: str = QWEN,
    pre: str = "smollm",
    **config: Any,
) -> Path:
    """Write a model that answers the n-th turn of a conversation with the n-th answer.

    Parameters
    ----------
    answers
        Texts, tags included, that end with the end token; or tokens as they are. The last one is
        repeated.
    **config
        More for config.json, such as ``max_position_embeddings``.
    """
    tokenizer = tokenizer_of(template, pre)
    encode = _encoder(tokenizer.backend_tokenizer)
    (end,) = encode(END)
    opening = template.rpartition(ROLE)[2].partition("'")[0].replace("\\n", "\n")
    settings = {
        "model_type": "scripted",
        "model_file": "model.py",
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 4096,
        "eos_token_id": end,
        "role": encode(ROLE),
        "opening": encode(ROLE + opening),
        "script": [[*encode(a), end] if isinstance(a, str) else list(a) for a in answers],
        **config,
    }
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    weights = {"weight": mx.ones((1,))}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    shutil.copy(Path(__file__).parent / "model.py", folder / "model.py")
    return folder


def _encoder(tokenizer: Tokenizer) -> Any:
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def load_scripted(engine: LocalEngine, folder: Path) -> str:
    """Load such a model, whose code no name alone would run; returns its name."""
    return engine.load_source(resolve(folder, trust_model_code=True), progress=False).name


def model_of(engine: LocalEngine, name: str) -> Any:
    """The loaded model, to count what it computes and to be called before it does."""
    return engine.core.runtime(name).model
