"""A model's tokens as grammars see them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from mlxnb.engine.grammar import quoted
from mlxnb.engine.markup import Markup
from mlxnb.errors import InvalidOption

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

COMPILED = 32
"""Grammars that are kept: an agent asks for the same one with each request."""


class Vocabulary:
    """The tokens of one model, and its markup.

    Parameters
    ----------
    tokenizer
        mlx-lm's tokenizer wrapper.
    size
        Width of the logits, padding included.
    ends
        Tokens that end an answer.
    """

    def __init__(self, tokenizer: Any, size: int, ends: frozenset[int]) -> None:
        self.markup = Markup.of(tokenizer)
        self.size = size
        self.ends = ends
        self._tokenizer = tokenizer
        self._compiled: dict[str, LLMatcher] = {}

    @cached_property
    def tokens(self) -> LLTokenizer:
        """The tokens, compiled on first use, which takes about a second.

        Raises
        ------
        InvalidOption
            The tokenizer is of a kind that cannot be constrained.
        """
        from llguidance import LLTokenizer

        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise InvalidOption(
                "this model's tokenizer cannot be held to a grammar: ask for free text and tools "
                "that it may call"
            )
        return LLTokenizer(backend.to_str(), n_vocab=self.size, eos_token=sorted(self.ends))

    def matcher(self, grammar: str) -> LLMatcher:
        """A matcher at the beginning of a grammar in Lark's form.

        Raises
        ------
        InvalidOption
            The grammar cannot be compiled, or is too large.
        """
        if grammar not in self._compiled:
            if len(self._compiled) >= COMPILED:
                self._compiled.clear()
            self._compiled[grammar] = self._compile(grammar)
        return self._compiled[grammar].deep_copy()

    def _compile(self, grammar: str) -> LLMatcher:
        from llguidance import LLMatcher

        matcher = LLMatcher(self.tokens, LLMatcher.grammar_from_lark(grammar), log_level=0)
        if matcher.is_error():
            reason = matcher.get_error().partition("\n")[0]
            raise InvalidOption(f"the answer's form cannot be enforced: {reason}")
        return matcher

    def spell(self, tag: str) -> str:
        """A tag in a grammar: its own token where it has one that is no plain text."""
        (*_, last) = ids = self.tokens.tokenize_str(tag, parse_special=True)
        alone = len(ids) == 1 and self.tokens.is_special_token(last)
        return f"<[{last}]>" if alone else quoted(tag)

    def encode(self, tag: str) -> tuple[int, ...]:
        """The tokens that a model writes a tag with."""
        ids = self._tokenizer.encode(tag, add_special_tokens=False)
        return tuple(int(token) for token in ids)
