"""Log-probabilities of a model's logits: by the native kernel where it may be used."""

from __future__ import annotations

import mlx.core as mx

from mlxnb import native


def normalized(logits: mx.array) -> mx.array:
    """Log-probabilities of logits ``(rows, vocab)``."""
    if native.available():
        return native.log_softmax(logits)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
