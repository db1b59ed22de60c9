"""A model's chat template: messages to text, text to tokens, and which token is whose.

What a template writes itself is found by rendering twice with different sentinels in place of
the messages' texts and seeing what stays. Special tokens are never looked for, since a user's
text may contain their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxnb.errors import TemplateFailed
from mlxnb.records.turn import Span
from mlxnb.sessions.deadline import within
from mlxnb.sessions.encoder import Encoder
from mlxnb.sessions.markup import Markup, choose_mark
from mlxnb.sessions.messages import Message
from mlxnb.sessions.places import (
    Place,
    cut,
    find_places,
    sentinel,
    spans_of,
    with_sentinels,
    with_text,
)

RENDER_S = 10.0
"""Seconds that a template may take; the slowest of real ones takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """Token ids of a conversation, or of its continuation, and whose they are.

    ``spans`` is empty where the template does not let messages' ends be found.
    ``opens_reasoning``: the text ends inside a think tag that the template opened. ``text`` is
    what the template wrote, where it has just been asked.
    """

    tokens: list[int]
    spans: list[Span]
    opens_reasoning: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Around:
    """What is written before an answer's reasoning, and between that and its text.

    ``between`` is None where the answer has no reasoning, or it is not written at all.
    """

    before: str
    between: str | None

    @classmethod
    def of(cls, piece: str, thought: str | None) -> Around:
        """Of what stands before an answer's text; ``thought`` stands for its reasoning."""
        if thought is None or piece.count(thought) != 1:
            return cls(piece, None)
        return cls(*piece.split(thought))


class ChatTemplate:
    """Renders and encodes conversations for one model.

    Parameters
    ----------
    tokenizer
        mlx-lm's tokenizer wrapper.
    options
        Extra variables for the template, such as ``enable_thinking``.
    """

    def __init__(self, tokenizer: Any, options: dict[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        self._markup = Markup(tokenizer)
        self._encoder = Encoder(tokenizer)

    def render(self, messages: Sequence[Message], tools: list[Any] | None = None) -> str:
        """The conversation as text, up to where the model's answer begins.

        Raises
        ------
        TemplateFailed
            The template refuses these messages, in its own words, or takes too long.
        """
        options = {**self._options, **({"tools": tools} if tools else {})}
        try:
            with within(RENDER_S):
                return str(
                    self._tokenizer.apply_chat_template(
                        list(messages), tokenize=False, add_generation_prompt=True, **options
                    )
                )
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise TemplateFailed(f"the model's chat template failed: {reason}") from error

    def conversation(self, messages: list[Message], tools: list[Any] | None) -> Rendered:
        """The prompt for a whole conversation.

        Raises
        ------
        TemplateFailed
            The template refuses these messages.
        """
        mark, safe, safe_tools = self._guarded(messages, tools)
        text = self.render(safe, safe_tools)
        places = find_places(text, safe, 0, self._literals(safe, safe_tools, 0))
        return self._encoded(text, mark, places, len(messages))

    def continuation(
        self, messages: list[Message], answer: int, tools: list[Any] | None
    ) -> Rendered | None:
        """What comes after message number ``answer``, whose tokens are there as generated.

        None where the template does not put that message's text in one place and the same after
        it whatever it says; the conversation must then be rendered whole.
        """
        mark, safe, safe_tools = self._guarded(messages, tools)
        text = self._after(safe, answer, safe_tools)
        if text is None or text != self._after(safe, answer, safe_tools):
            return None
        bare = with_text(safe, answer, sentinel())
        literals = self._literals(bare, safe_tools, answer)
        places = find_places(text, bare, answer + 1, literals[1:] if literals else None)
        return self._encoded(text, mark, places, len(messages), continues=True)

    def around(
        self, messages: list[Message], answers: Mapping[int, bool], tools: list[Any] | None
    ) -> list[Around] | None:
        """What the template writes before each of some answers, whatever these say.

        Parameters
        ----------
        answers
            Numbers of messages in order, and whether the answer begins with reasoning.

        Returns
        -------
        list or None
            None where the texts of the answers do not stand in their order, each once.
        """
        mark, safe, safe_tools = self._guarded(messages, tools)
        thoughts = {number: sentinel() for number, reasons in answers.items() if reasons}
        texts = [sentinel() for _ in answers]
        for number, text in zip(answers, texts, strict=True):
            safe = with_text(safe, number, text)
            if number in thoughts:
                safe[number]["reasoning_content"] = thoughts[number]
        try:
            pieces = cut(self.render(safe, safe_tools).replace(mark, ""), texts)
        except TemplateFailed:
            return None
        if pieces is None:
            return None
        pairs = zip(answers, pieces, strict=False)
        return [Around.of(piece, thoughts.get(number)) for number, piece in pairs]

    def literal(self, text: str) -> list[int]:
        """Token ids of a text that follows others; none of them is a special token."""
        mark = choose_mark(text)
        return self._encoder.encode(self._markup.guard(text, mark), mark, continues=True).tokens

    def _guarded(
        self, messages: list[Message], tools: list[Any] | None
    ) -> tuple[str, list[Message], list[Any] | None]:
        """A mark, and the messages and tools with it wherever they name special tokens."""
        mark = choose_mark([messages, tools])
        return mark, self._markup.guard(messages, mark), self._markup.guard(tools, mark)

    def _after(self, messages: list[Message], answer: int, tools: list[Any] | None) -> str | None:
        """What is written after the text of message ``answer``; None if that is not one place."""
        stand_in = sentinel()
        try:
            pieces = cut(self.render(with_text(messages, answer, stand_in), tools), [stand_in])
        except TemplateFailed:
            return None
        return pieces[1] if pieces is not None else None

    def _literals(
        self, messages: list[Message], tools: list[Any] | None, first: int
    ) -> list[str] | None:
        """What is written before, between and after the texts of messages ``first`` and on.

        None if that depends on the texts, or does not stand in their order.
        """
        tries = []
        for _ in range(2):
            changed, sentinels = with_sentinels(messages, first)
            try:
                tries.append(cut(self.render(changed, tools), sentinels))
            except TemplateFailed:
                return None
        return tries[0] if tries[0] == tries[1] else None

    def _encoded(
        self,
        text: str,
        mark: str,
        places: list[Place] | None,
        answer: int,
        continues: bool = False,
    ) -> Rendered:
        """Encode a rendered text that message number ``answer`` is to follow."""
        encoded = self._encoder.encode(text, mark, continues)
        spans: list[Span] = []
        if places is not None and encoded.starts is not None:
            spans = spans_of(encoded.starts, places, answer)
        return Rendered(encoded.tokens, spans, self._opens_reasoning(text), text.replace(mark, ""))

    def _opens_reasoning(self, text: str) -> bool:
        opening = getattr(self._tokenizer, "think_start", None)
        return bool(opening) and text.rstrip().endswith(str(opening))
