"""What a model's prompts and answers need of it: all but the weights."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from mlxnb.engine.form import Form
from mlxnb.engine.markup import Markup
from mlxnb.engine.runtime import Runtime
from mlxnb.engine.sampling import Sampling
from mlxnb.engine.vocabulary import Vocabulary
from mlxnb.errors import ContextOverflow, InvalidOption
from mlxnb.models.folder import read_config
from mlxnb.models.info import describe
from mlxnb.models.load import load_tokenizer, vocabulary
from mlxnb.models.source import ModelSource
from mlxnb.sessions.template import ChatTemplate
from mlxnb.sessions.wishes import wishes
from mlxnb.text.answer import AnswerMachine
from mlxnb.text.envelope import parse_json

UNBOUNDED = 2**31 - 1
"""Tokens that fit a model which does not say how many do."""


@dataclass(slots=True, eq=False)
class Texts:
    """A model's tokenizer and templates, and the limits of what it reads and writes.

    Attributes
    ----------
    key
        Names the model's content: weights, tokenizer, template and adapter.
    vocab
        Width of its logits.
    wishes
        How its makers want it to be sampled.
    lock
        To be held while something is rendered or encoded: tokenizers are not all thread-safe.
    """

    name: str
    key: str
    tokenizer: Any
    vocab: int
    context_length: int | None
    wishes: Sampling = Sampling()  # noqa: RUF009 - frozen
    lock: threading.RLock = field(default_factory=threading.RLock)
    _templates: dict[bool | None, ChatTemplate] = field(default_factory=dict)
    _vocabulary: Vocabulary | None = None

    @classmethod
    def of_runtime(cls, runtime: Runtime, wanted: Sampling) -> Texts:
        """Those of a loaded model."""
        info = runtime.info
        return cls(
            info.name, runtime.key, runtime.tokenizer, runtime.vocab, info.context_length, wanted
        )

    @classmethod
    def of_source(cls, source: ModelSource) -> Texts:
        """Those of a model that is not loaded; no weights are read, no MLX array is touched.

        Raises
        ------
        ModelBroken
            Its files cannot be read.
        """
        info, tokenizer = describe(source), load_tokenizer(source)
        vocab = vocabulary(read_config(source.path), tokenizer)
        key = info.fingerprint or source.name
        return cls(source.name, key, tokenizer, vocab, info.context_length, wishes(source))

    @property
    def window(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self.context_length or UNBOUNDED

    @property
    def end_tokens(self) -> frozenset[int]:
        """What ends an answer."""
        return frozenset(self.tokenizer.eos_token_ids)

    def template(self, thinking: bool | None) -> ChatTemplate:
        """The chat template; ``thinking`` is its switch, None: as it likes."""
        with self.lock:
            if thinking not in self._templates:
                extra = {} if thinking is None else {"enable_thinking": thinking}
                self._templates[thinking] = ChatTemplate(self.tokenizer, extra)
            return self._templates[thinking]

    def settled(self, sampling: Sampling, prompt: int) -> Sampling:
        """Sampling with nothing open, its output clamped to what ``prompt`` tokens leave.

        Raises
        ------
        ContextOverflow
            They leave nothing.
        InvalidOption
            A token of the bias is none of the model's.
        """
        if prompt >= self.window:
            raise ContextOverflow(prompt, self.window)
        wrong = [t for t in sampling.logit_bias or () if not 0 <= t < self.vocab]
        if wrong:
            raise InvalidOption(f"logit_bias: the model has no token {wrong[0]}")
        full = sampling.over(self.wishes).settled()
        room = self.window - prompt
        return Sampling(max_tokens=min(full.max_tokens or room, room)).over(full)

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens as grammars see them."""
        with self.lock:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self.tokenizer, self.vocab, self.end_tokens)
            return self._vocabulary

    def machine(
        self,
        opens_reasoning: bool,
        tools: list[Any] | None,
        stops: tuple[str, ...],
        form: Form | None = None,
    ) -> AnswerMachine:
        """What separates an answer's text, reasoning and calls."""
        markup = Markup.of(self.tokenizer)
        calls = markup.calls or (form is not None and form.required)
        own = self.tokenizer.tool_parser if markup.calls else parse_json
        return AnswerMachine(
            think=markup.think,
            starts_in_reasoning=opens_reasoning and markup.think is not None,
            tool_tags=markup.call if calls else None,
            parse_tool=own if calls else None,
            tools=tools,
            stops=stops,
            markers=self.tokenizer.structural_markers,
            max_calls=None if form is None or form.parallel else 1,
        )
