"""Logits processors that hold an answer to its form, on the engine's thread.

A guide waits for the token that was drawn last, lets the model's own computation go on, and
computes meanwhile which tokens may follow. A batch's other rows see nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from mlxnb.engine.form import Form
from mlxnb.engine.grammar import one_call, whole_answer
from mlxnb.engine.reasoning import Output, Reasoning, ReasoningBudget, ends_with
from mlxnb.engine.vocabulary import Vocabulary
from mlxnb.errors import InvalidOption

if TYPE_CHECKING:
    from llguidance import LLMatcher


class AnswerGuide:
    """Holds an answer to a grammar from its first token to its last.

    Parameters
    ----------
    matcher
        At the beginning of the grammar.
    prompt
        Tokens of the prompt.
    begun
        Tokens of the answer that are part of the prompt.
    """

    def __init__(
        self, vocabulary: Vocabulary, matcher: LLMatcher, prompt: int, begun: Sequence[int] = ()
    ) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._output = Output(prompt)
        self._begun = list(begun)
        self._begin()

    def _begin(self) -> None:
        if self._begun and not self._matcher.consume_tokens(self._begun):
            raise InvalidOption("the beginning of the answer does not have the form asked for")

    def claim(self) -> bool:
        """Every call is held to its tool's schema."""
        return True

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """The logits ``(1, vocab)``, minus infinity where a token cannot follow ``tokens``."""
        new, again = self._output.read(tokens)
        if again:
            self._matcher.reset()
            self._begin()
        if _consumed(self._matcher, new, self._vocabulary.ends):
            return logits
        return masked(self._matcher, logits)


class CallGuide:
    """Lets an answer be as it likes, but for its calls, which are held to their tools' schemas.

    Parameters
    ----------
    matcher
        At the beginning of the grammar of one call, behind its start tag.
    prompt
        Tokens of the prompt.
    reasons
        The prompt has opened the reasoning.
    """

    def __init__(
        self, vocabulary: Vocabulary, matcher: LLMatcher, prompt: int, reasons: bool
    ) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._output = Output(prompt)
        self._tag = vocabulary.encode(vocabulary.markup.call[0])
        self._reasoning = Reasoning(vocabulary, reasons)
        self._tail: list[int] = []
        self._inside = False
        self._unclaimed = 0

    def claim(self) -> bool:
        """Whether the call that has just been opened is held to its schema; asked once a call."""
        claimed = self._unclaimed > 0
        self._unclaimed -= claimed
        return claimed

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """The logits ``(1, vocab)``, as they are outside of calls."""
        new, again = self._output.read(tokens)
        if again:
            self._inside, self._unclaimed = False, 0
            self._reasoning.restart()
        for token in new:
            self._follow(token)
        return masked(self._matcher, logits) if self._inside else logits

    def _follow(self, token: int) -> None:
        if self._inside:
            ended = _consumed(self._matcher, [token], self._vocabulary.ends)
            self._inside = not (ended or self._matcher.is_stopped())
            return
        self._tail = [*self._tail, token][-len(self._tag) :]
        if not self._reasoning.inside_after(token) and ends_with(self._tail, self._tag):
            self._matcher.reset()
            self._inside, self._tail = True, []
            self._unclaimed += 1


def guides(
    vocabulary: Vocabulary, form: Form, prompt: int, reasons: bool | None, begun: Sequence[int] = ()
) -> list[AnswerGuide | CallGuide | ReasoningBudget]:
    """The processors that hold an answer to a form; none where it asks for nothing.

    Parameters
    ----------
    prompt
        Tokens of the prompt.
    reasons
        Whether the prompt has opened the reasoning; None: the model may open it.
    begun
        Tokens of the answer that are part of the prompt.

    Raises
    ------
    InvalidOption
        The form cannot be enforced with this model.
    """
    made: list[AnswerGuide | CallGuide | ReasoningBudget] = []
    markup = vocabulary.markup
    if form.schema is not None or (form.required and form.callable_tools):
        grammar = whole_answer(form, markup, vocabulary.spell, reasons)
        made.append(AnswerGuide(vocabulary, vocabulary.matcher(grammar), prompt, begun))
    elif form.callable_tools and markup.calls and markup.envelope.json:
        matcher = vocabulary.matcher(one_call(form, markup, vocabulary.spell))
        made.append(CallGuide(vocabulary, matcher, prompt, bool(reasons)))
    if form.reasoning_tokens is not None and markup.think is not None and reasons is not False:
        made.append(ReasoningBudget(vocabulary, form.reasoning_tokens, prompt, bool(reasons)))
    return made


def _consumed(matcher: LLMatcher, tokens: Sequence[int], ends: frozenset[int]) -> bool:
    """Feed tokens; True when the answer has ended, and what is drawn beyond is not looked at."""
    for token in tokens:
        if token in ends:
            return True
        if not matcher.consume_token(token):
            raise RuntimeError(f"a token that was masked was drawn: {matcher.get_error()}")
    return False


def masked(matcher: LLMatcher, logits: mx.array) -> mx.array:
    """The logits ``(1, vocab)`` of what may follow; all others minus infinity."""
    mx.async_eval(logits)
    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    if matcher.is_error():
        raise RuntimeError(f"the grammar failed: {matcher.get_error()}")
    keep = np.unpackbits(bits, count=logits.shape[-1], bitorder="little").view(np.bool_)
    return mx.where(mx.array(keep), logits, -math.inf)
