"""Log-probabilities of a model's logits: by the native kernel where it may be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mlxnb import native
from mlxnb.errors import BadLogits
from mlxnb.records.alternative import Alternative

ADVICE = (
    "its weights may be damaged, or leave the range of their type: load it again, or try another "
    "quantization"
)


def normalized(logits: mx.array) -> mx.array:
    """Log-probabilities of logits ``(rows, vocab)``."""
    if native.available():
        return native.log_softmax(logits)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a token was drawn from, being computed.

    Attributes
    ----------
    ids, values
        The likeliest tokens ``(count,)`` and their log-probabilities, in no order.
    own, rank
        The log-probability of the token that was drawn, and how many are likelier: one number
        each.
    """

    ids: mx.array
    values: mx.array
    own: mx.array
    rank: mx.array

    @classmethod
    def of(cls, logprobs: mx.array, token: mx.array | int, count: int) -> Choice:
        """The ``count`` likeliest of ``(vocab,)``, and a token that was drawn, one number."""
        ids = mx.argpartition(-logprobs, max(0, count - 1))[:count]
        own = logprobs[token]
        return cls(ids, logprobs[ids], own, (logprobs > own).sum())

    @property
    def arrays(self) -> list[mx.array]:
        """All of it."""
        return [self.ids, self.values, self.own, self.rank]

    def read(self, token: int) -> list[Alternative]:
        """The likeliest tokens, and the drawn one where it is none of them; likeliest first."""
        ids: Any = self.ids.tolist()
        values: Any = self.values.tolist()
        pairs = sorted(zip(ids, values, strict=True), key=lambda pair: -pair[1])
        found = [Alternative(i, v, rank, i == token) for rank, (i, v) in enumerate(pairs)]
        if not any(each.taken for each in found):
            rank: Any = self.rank.item()
            own: Any = self.own.item()
            found.append(Alternative(token, own, rank, True))
        return found


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
