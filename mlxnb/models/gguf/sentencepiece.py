"""SentencePiece BPE from a GGUF file: merges are rebuilt from the pieces' scores.

GGUF stores no merges for this kind; a pair may merge where its text is a piece, best score
first, which is SentencePiece's own rule. Source: transformers' ``SentencePieceExtractor``.
"""

from __future__ import annotations

from typing import Any

from mlxnb.errors import ModelBroken
from mlxnb.models.gguf.reader import GGUF
from mlxnb.models.gguf.tokenizer import Vocabulary, start_token

_SPACE = "\u2581"
_NORMAL, _UNKNOWN, _BYTE = 1, 2, 6


def sentencepiece(file: GGUF, vocabulary: Vocabulary) -> Any:
    """The ``tokenizers`` tokenizer of a file whose ``tokenizer.ggml.model`` is llama."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    unknown = vocabulary.role("unknown")
    if unknown is None:
        unknown = next((i for i, kind in enumerate(vocabulary.types) if kind == _UNKNOWN), None)
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(vocabulary.tokens)},
            merges=_merges(file, vocabulary),
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=_BYTE in vocabulary.types,
        )
    )
    prefix = file.metadata.get("tokenizer.ggml.add_space_prefix", True)
    spaces = [normalizers.Prepend(_SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*spaces, normalizers.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    tokenizer.post_processor = start_token(vocabulary, default=True)
    return tokenizer


def _merges(file: GGUF, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    scores = file.metadata.get("tokenizer.ggml.scores")
    if not scores or len(scores) < len(vocabulary.tokens):
        raise ModelBroken(f"{file.path} holds no scores for its tokenizer's pieces")
    pieces = {
        token: index
        for index, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind == _NORMAL
    }
    found = []
    for piece, index in pieces.items():
        for left, right in _cuts(piece, pieces):
            found.append((-scores[index], pieces[left], pieces[right], left, right))
    found.sort()
    return [(left, right) for *_, left, right in found]


def _cuts(piece: str, pieces: dict[str, int]) -> list[tuple[str, str]]:
    cuts = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
    return [(left, right) for left, right in cuts if left in pieces and right in pieces]
