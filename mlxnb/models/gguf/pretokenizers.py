"""Pre-tokenizers by ``tokenizer.ggml.pre``, as the models' own tokenizer.json has them.

Wrong splits give other ids without any error, so what is not in this table is refused. Names:
llama.cpp's ``llama-vocab.cpp``; patterns: the tokenizer.json of the model that a name stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlxnb.errors import UnsupportedModel

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"

_LLAMA3 = "|".join([_CONTRACTIONS, _WORDS, r"\p{N}{1,3}", _PUNCTUATION, _SPACES])
_QWEN2 = "|".join([_CONTRACTIONS, _WORDS, r"\p{N}", _PUNCTUATION, _SPACES])
_TEKKEN = "|".join(
    [
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        _SPACES,
    ]
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How text is cut before BPE: by ``pattern``, or by GPT-2's rule where it is None.

    ``digits``: each digit stands alone first. ``whole``: a piece that is a token is that token,
    whatever the merges say. ``nfc``: text is normalized. ``bos``: a start token by default.
    """

    pattern: str | None = None
    digits: bool = False
    whole: bool = False
    nfc: bool = False
    bos: bool = False

    def build(self) -> Any:
        """As a ``tokenizers`` pre-tokenizer that ends in byte-level characters."""
        from tokenizers import Regex, pre_tokenizers

        gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.pattern is None)
        steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if self.digits else []
        if self.pattern is not None:
            steps.append(pre_tokenizers.Split(Regex(self.pattern), "isolated", invert=False))
        return pre_tokenizers.Sequence([*steps, gpt2]) if steps else gpt2


_LLAMA3_STYLE = PreTokenizer(_LLAMA3, whole=True, bos=True)
_QWEN2_STYLE = PreTokenizer(_QWEN2, nfc=True)

PRE_TOKENIZERS = {
    "llama-bpe": _LLAMA3_STYLE,
    "llama3": _LLAMA3_STYLE,
    "llama-v3": _LLAMA3_STYLE,
    "qwen2": _QWEN2_STYLE,
    "deepseek-r1-qwen": PreTokenizer(_QWEN2),
    "smollm": PreTokenizer(digits=True),
    "gpt-2": PreTokenizer(),
    "tekken": PreTokenizer(_TEKKEN, whole=True, bos=True),
}


def pre_tokenizer(name: str | None) -> PreTokenizer:
    """The pre-tokenizer that a file names.

    Raises
    ------
    UnsupportedModel
        No such name is known, or the file names none; lists those that are.
    """
    found = PRE_TOKENIZERS.get(name or "")
    if found is None:
        known = ", ".join(PRE_TOKENIZERS)
        raise UnsupportedModel(f"GGUF pre-tokenizer {name!r} is not supported; supported: {known}")
    return found
