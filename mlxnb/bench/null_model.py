"""A model that computes next to nothing, so that what is left is the loop around it."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from mlxnb.models.info import ModelInfo
from mlxnb.models.load import LoadedModel

VOCAB = 256
TOKEN = 97
"""The token that it always gives: the letter a."""


class NullModel:
    """One layer's KV of 8 numbers a token, and logits that always favour `TOKEN`."""

    def __init__(self) -> None:
        self.bias = mx.where(mx.arange(VOCAB) == TOKEN, 10.0, 0.0)
        self.layers = [None]
        mx.eval(self.bias)

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        """Logits ``(rows, tokens, vocab)`` for ids ``(rows, tokens)``; keeps KV in ``cache``."""
        rows, tokens = inputs.shape
        keys = mx.broadcast_to(inputs[:, None, :, None].astype(mx.float32), (rows, 1, tokens, 8))
        keys, _ = cache[0].update_and_fetch(keys, keys)
        logits: mx.array = self.bias + 0.0 * keys[:, 0, -1:, :1]
        return logits


class NullDetokenizer:
    """Each token is one character."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop what was added."""
        self.text, self._shown = "", 0

    def add_token(self, token: int) -> None:
        """Add a character."""
        self.text += chr(token)

    def finalize(self) -> None:
        """Nothing is held back."""

    @property
    def last_segment(self) -> str:
        """What was added since the last look."""
        segment, self._shown = self.text[self._shown :], len(self.text)
        return segment


class NullTokenizer:
    """No special tokens, no template."""

    eos_token_ids = frozenset({0})

    @property
    def detokenizer(self) -> NullDetokenizer:
        """A fresh detokenizer."""
        return NullDetokenizer()

    def decode(self, tokens: list[int]) -> str:
        """A character a token."""
        return "".join(map(chr, tokens))

    def __len__(self) -> int:
        return VOCAB


def null_model() -> LoadedModel:
    """The model as the engine takes it."""
    model = NullModel()
    info = ModelInfo(
        "null", family="null", context_length=2**20, bytes=4 * VOCAB, fingerprint="null"
    )
    return LoadedModel(model, {"vocab_size": VOCAB}, NullTokenizer(), info)
