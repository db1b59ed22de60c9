"""Small tokenizers in the manner of the large ones, with every family's special tokens."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from mlx_lm.tokenizer_utils import (
    BPEStreamingDetokenizer,
    NaiveStreamingDetokenizer,
    SPMStreamingDetokenizer,
    TokenizerWrapper,
)
from models.tiny import CORPUS, byte_level
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from .templates import FAMILIES, SPECIAL, TAGS

KINDS = ("byte", "trimming", "llama3", "qwen", "spm", "spm_legacy")
_BYTES = [f"<0x{number:02X}>" for number in range(256)]


@cache
def backend(kind: str) -> Tokenizer:
    """``byte``: GPT-2's; ``trimming``: the same with offsets that leave spaces out; ``spm``."""
    if kind.startswith("spm"):
        tokenizer = _sentencepiece(legacy=kind == "spm_legacy")
    else:
        pre = {"llama3": "llama-bpe", "qwen": "qwen2"}.get(kind, "gpt-2")
        tokenizer = byte_level(pre)
        if kind in ("trimming", "llama3"):
            tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in TAGS])
    return tokenizer


def _sentencepiece(legacy: bool) -> Tokenizer:
    """As Llama 2's: a space before the first word, or before every stretch without a token."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if legacy:
        space = normalizers.Replace(" ", "▁")
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    fuse = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*fuse, decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", "<s>", "</s>", *_BYTES], show_progress=False
    )
    tokenizer.train_from_iterator([line.split("\n")[0] for line in CORPUS] * 3, trainer)
    made = json.loads(tokenizer.to_str())
    made["added_tokens"] = [t for t in made["added_tokens"] if t["content"] not in _BYTES]
    return Tokenizer.from_str(json.dumps(made))


@cache
def wrapped(kind: str, family: str = "smollm2", template: str | None = None) -> Any:
    """mlx-lm's wrapper of such a tokenizer with a family's template, or with that template."""
    own, begin, end = FAMILIES[family]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend(kind),
        bos_token=begin,
        eos_token=end,
        unk_token="<unk>" if kind.startswith("spm") else None,
        chat_template=template or own,
    )
    tokenizer.chat_template = template or own
    detokenizer: Any = BPEStreamingDetokenizer
    if kind.startswith("spm"):
        detokenizer = SPMStreamingDetokenizer
    elif kind == "trimming":
        detokenizer = NaiveStreamingDetokenizer
    return TokenizerWrapper(tokenizer, detokenizer)
