"""How long an answer reasons, token by token, and the end of it when that is long enough."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxnb.engine.vocabulary import Vocabulary


class Output:
    """The tokens of an answer as a processor is shown them, one more at each call.

    A request that is set back is shown an earlier place again.

    Parameters
    ----------
    prompt
        Tokens before the answer.
    """

    def __init__(self, prompt: int) -> None:
        self._prompt = prompt
        self._read = 0

    def read(self, tokens: mx.array) -> tuple[list[int], bool]:
        """What is new in ``tokens`` ``(prompt + answer,)``; True: all of it, from the beginning."""
        length = tokens.shape[0] - self._prompt
        again = 0 < self._read >= length
        start = self._prompt + (0 if again else self._read)
        self._read = length
        return np.array(tokens[start:]).tolist(), again


class Reasoning:
    """Whether an answer is in its reasoning, token by token.

    Parameters
    ----------
    begins
        The prompt has opened it.
    """

    def __init__(self, vocabulary: Vocabulary, begins: bool) -> None:
        think = vocabulary.markup.think
        self.start: tuple[int, ...] = ()
        self.end: tuple[int, ...] = ()
        if think is not None:
            self.start, self.end = map(vocabulary.encode, think)
        self._begins = begins and think is not None
        self.restart()

    def restart(self) -> None:
        """Back to the beginning of the answer."""
        self.inside, self.tokens = self._begins, 0
        self._tail: list[int] = []

    def inside_after(self, token: int) -> bool:
        """Whether it is in its reasoning once this token is read."""
        if not self.start:
            return False
        self.tokens += self.inside
        self._tail = [*self._tail, token][-max(len(self.start), len(self.end)) :]
        tag = self.end if self.inside else self.start
        if ends_with(self._tail, tag):
            self.inside, self._tail = not self.inside, []
        return self.inside


class ReasoningBudget:
    """Ends the reasoning when it has had its tokens, with the model's own end tag.

    Parameters
    ----------
    tokens
        So many at most, the end tag not counted.
    """

    def __init__(self, vocabulary: Vocabulary, tokens: int, prompt: int, reasons: bool) -> None:
        self._budget = tokens
        self._output = Output(prompt)
        self._reasoning = Reasoning(vocabulary, reasons)
        self._closing: list[int] = []

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """The logits ``(1, vocab)``; of the end tag's next token alone when the budget is used."""
        new, again = self._output.read(tokens)
        if again:
            self._reasoning.restart()
            self._closing = []
        for token in new:
            self._reasoning.inside_after(token)
            self._closing = self._closing[1:]
        if not self._reasoning.inside:
            self._closing = []
            return logits
        if not self._closing and self._reasoning.tokens >= self._budget:
            self._closing = list(self._reasoning.end)
        return _only(self._closing[0], logits) if self._closing else logits


def ends_with(tokens: Sequence[int], tag: Sequence[int]) -> bool:
    """Whether tokens end with those of a tag, which is not empty."""
    return bool(tag) and tuple(tokens[-len(tag) :]) == tuple(tag)


def _only(token: int, logits: mx.array) -> mx.array:
    return mx.where(mx.arange(logits.shape[-1]) == token, logits, -math.inf)
