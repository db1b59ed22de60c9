"""A model's identity: two models with the same fingerprint answer alike, token for token.

Hashing gigabytes at each start is too slow, and headers alone do not tell a fine-tune from its
base. So each tensor is sampled in its middle: training changes tensors throughout.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from mlxnb.models.folder import read_config, weight_files
from mlxnb.models.safetensors import read_header
from mlxnb.models.source import ModelSource

_SAMPLE = 1024
_TOKENIZER = (
    "tokenizer.json",
    "tokenizer.model",
    "tiktoken.model",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
)
_IGNORED = ("_name_or_path", "transformers_version")


def fingerprint(source: ModelSource) -> str:
    """BLAKE2b of a model's parts, as 16 hex digits.

    The parts: config.json; each weight file's size, its tensors' names, dtypes and shapes, and
    1 KiB from the middle of each tensor; the tokenizer's files and chat template; the adapter,
    whole; in how many bits KV is kept. Where the folder lies makes no difference.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in _parts(source):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parts(source: ModelSource) -> Iterator[bytes]:
    config = read_config(source.path)
    settings = {key: value for key, value in config.items() if key not in _IGNORED}
    yield json.dumps(settings, sort_keys=True).encode()
    for file in weight_files(source.path):
        yield from _samples(file)
    for name in _TOKENIZER:
        yield from _whole(source.path / name)
    if source.adapter is not None:
        yield from _whole(source.adapter / "adapter_config.json")
        yield from _whole(source.adapter / "adapters.safetensors")
    if source.kv_bits is not None:
        yield f"kv {source.kv_bits} bits".encode()


def _whole(file: Path) -> Iterator[bytes]:
    if file.is_file():
        yield file.name.encode()
        yield file.read_bytes()


def _samples(file: Path) -> Iterator[bytes]:
    tensors = read_header(file)
    base = file.stat().st_size - max((tensor.end for tensor in tensors.values()), default=0)
    yield f"{file.name} {file.stat().st_size}".encode()
    descriptor = os.open(file, os.O_RDONLY)
    try:
        for name in sorted(tensors):
            tensor = tensors[name]
            yield f"{name} {tensor.dtype} {tensor.shape}".encode()
            middle = base + (tensor.start + tensor.end) // 2
            yield os.pread(descriptor, min(_SAMPLE, base + tensor.end - middle), middle)
    finally:
        os.close(descriptor)
