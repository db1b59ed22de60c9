"""A tokenizer from a GGUF file's metadata, written as tokenizer.json and its config."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mlxnb.errors import ModelBroken, UnsupportedModel
from mlxnb.models.gguf.pretokenizers import pre_tokenizer
from mlxnb.models.gguf.reader import GGUF

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5
"""Token types of ``tokenizer.ggml.token_type``."""
_PADDING = re.compile(r"\[PAD\d+\]")
_END_NAMES = {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>"}
"""Control tokens that end an answer, whatever the metadata name as end token: llama.cpp's rule."""


def write_tokenizer(file: GGUF, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template into ``folder``.

    Raises
    ------
    UnsupportedModel
        The tokenizer's kind or its pre-tokenizer is not known.
    ModelBroken
        Tokens, merges or the chat template are missing.
    """
    vocabulary = Vocabulary(file)
    kind = file.metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        tokenizer = _byte_level(file, vocabulary)
    elif kind == "llama":
        from mlxnb.models.gguf.sentencepiece import sentencepiece

        tokenizer = sentencepiece(file, vocabulary)
    else:
        raise UnsupportedModel(
            f"{file.path}: tokenizer kind {kind!r} is not supported; "
            "supported: gpt2 (byte-level BPE), llama (SentencePiece BPE)"
        )
    tokenizer.add_special_tokens(vocabulary.added(_CONTROL, _UNKNOWN))
    tokenizer.add_tokens(vocabulary.added(_USER_DEFINED))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = _config(file, vocabulary)
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config, indent=1, ensure_ascii=False), "utf-8"
    )


class Vocabulary:
    """The tokens of a file, their types, and the ids that have a role.

    Padding that converters append to fill the embedding is left out.
    """

    def __init__(self, file: GGUF) -> None:
        tokens = file.metadata.get("tokenizer.ggml.tokens")
        if not tokens:
            raise ModelBroken(f"{file.path} holds no tokenizer")
        types = file.metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
        if len(types) != len(tokens):
            raise ModelBroken(f"{file.path}: {len(tokens)} tokens but {len(types)} token types")
        while tokens and types[len(tokens) - 1] in (_UNUSED, _USER_DEFINED, _CONTROL):
            if not _PADDING.fullmatch(tokens[-1]):
                break
            tokens = tokens[:-1]
        self.tokens: list[str] = tokens
        self.types: list[int] = types[: len(tokens)]
        self._file = file

    def role(self, name: str) -> int | None:
        """The id with a role: bos, eos, eot, eom, unknown, padding."""
        token = self._file.metadata.get(f"tokenizer.ggml.{name}_token_id")
        return token if token is not None and 0 <= token < len(self.tokens) else None

    def ends(self) -> list[int]:
        """Ids that end an answer; the metadata's end token first."""
        named = [self.role(name) for name in ("eos", "eot", "eom")]
        known = [
            index
            for index, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind == _CONTROL and token in _END_NAMES
        ]
        return list(dict.fromkeys(index for index in [*named, *known] if index is not None))

    def starts(self, default: bool) -> int | None:
        """The id that a prompt starts with, None where it starts without one."""
        wanted = self._file.metadata.get("tokenizer.ggml.add_bos_token", default)
        return self.role("bos") if wanted else None

    def added(self, *types: int) -> list[Any]:
        """Tokens of these types, matched in the text before anything else."""
        from tokenizers import AddedToken

        special = _USER_DEFINED not in types
        return [
            AddedToken(token, special=special, normalized=False)
            for token, kind in zip(self.tokens, self.types, strict=True)
            if kind in types
        ]


def _byte_level(file: GGUF, vocabulary: Vocabulary) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    pre = pre_tokenizer(file.metadata.get("tokenizer.ggml.pre"))
    merges = file.metadata.get("tokenizer.ggml.merges")
    if merges is None:
        raise ModelBroken(f"{file.path} holds no merges for its tokenizer")
    model = models.BPE(
        vocab={token: index for index, token in enumerate(vocabulary.tokens)},
        merges=[_pair(merge) for merge in merges],
        ignore_merges=pre.whole,
    )
    tokenizer = Tokenizer(model)
    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre.build()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = start_token(vocabulary, pre.bos, byte_level=True)
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    at = merge.find(" ", 1)
    return merge[:at], merge[at + 1 :]


def start_token(vocabulary: Vocabulary, default: bool, byte_level: bool = False) -> Any:
    """The post-processor that puts the start token before a text, where the file wants one."""
    from tokenizers import processors

    start = vocabulary.starts(default)
    offsets = [processors.ByteLevel(trim_offsets=False)] if byte_level else []
    if start is None:
        return processors.Sequence(offsets)
    token = vocabulary.tokens[start]
    template = processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, start)]
    )
    return processors.Sequence([*offsets, template])


def _config(file: GGUF, vocabulary: Vocabulary) -> dict[str, Any]:
    template = file.metadata.get("tokenizer.chat_template")
    if not template:
        raise ModelBroken(f"{file.path} holds no chat template: it is a base model, not for chat")
    roles = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    named = {
        f"{theirs}_token": vocabulary.tokens[index]
        for ours, theirs in roles.items()
        if (index := vocabulary.role(ours)) is not None
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.required("context_length"),
        "chat_template": template,
        **named,
    }
