"""Log-probabilities of a model's logits: by the native kernel where it may be used."""

from __future__ import annotations

import mlx.core as mx

from mlxnb import native
from mlxnb.errors import BadLogits

ADVICE = (
    "its weights may be damaged, or leave the range of their type: load it again, or try another "
    "quantization"
)


def normalized(logits: mx.array) -> mx.array:
    """Log-probabilities of logits ``(rows, vocab)``."""
    if native.available():
        return native.log_softmax(logits)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def bad_logits(model: str, count: int, processed: bool) -> BadLogits:
    """The error of an answer of ``count`` tokens whose next one was drawn from no numbers.

    A token that can be drawn has a finite log-probability; where one logit is NaN or infinite the
    sum over all is none. ``processed``: a penalty, a bias or a form has changed the logits.
    """
    told = " (or what the request's own options made of them)" if processed else ""
    return BadLogits(
        f"{model} gave NaN or infinite logits{told} for token {count + 1} of the answer; {ADVICE}"
    )


def bad_kv(model: str) -> BadLogits:
    """The error of a prompt that was computed for later, without logits."""
    return BadLogits(f"{model} computed NaN or infinite keys or values of the prompt; {ADVICE}")
