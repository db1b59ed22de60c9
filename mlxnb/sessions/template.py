"""A model's chat template: messages to text, text to tokens, and which token is whose.

Message ends are found by rendering twice with different sentinels in place of the messages'
texts and seeing what stays: the template's own words. Special tokens are never looked for, since
a user's text may contain them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlxnb.errors import TemplateFailed
from mlxnb.records.turn import Span
from mlxnb.sessions.markup import Markup, choose_mark, encode_marked

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rendered:
    """Token ids of a conversation, or of its continuation, and whose they are.

    ``spans`` is empty where the template does not let messages' ends be found.
    ``opens_reasoning``: the text ends inside a think tag that the template opened.
    """

    tokens: list[int]
    spans: list[Span]
    opens_reasoning: bool


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

    def render(
        self, messages: Sequence[Message], tools: list[Any] | None = None, generate: bool = True
    ) -> str:
        """The conversation as text, ready for the model's answer if ``generate``.

        Raises
        ------
        TemplateFailed
            The template refuses these messages, in its own words.
        """
        options = {**self._options, **({"tools": tools} if tools else {})}
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages), tokenize=False, add_generation_prompt=generate, **options
                )
            )
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise TemplateFailed(f"the model's chat template failed: {reason}") from error

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special strings in it become special tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids, special ones included."""
        return str(self._tokenizer.decode(list(tokens)))

    # --- a whole conversation -----------------------------------------------------------------

    def conversation(self, messages: list[Message], tools: list[Any] | None) -> Rendered:
        """The prompt for a whole conversation."""
        mark = choose_mark([messages, tools])
        safe, safe_tools = self._markup.guard(messages, mark), self._markup.guard(tools, mark)
        text = self.render(safe, safe_tools)
        literals = self._literals(safe, safe_tools, 0)
        return self._encoded(text, mark, _places(text, safe, literals), 0)

    def continuation(
        self, messages: list[Message], answer: int, tools: list[Any] | None
    ) -> Rendered | None:
        """What comes after message number ``answer``, whose tokens are there as generated.

        None where the template does not put that answer's text in one place, unchanged, before
        all that follows it; the conversation must then be rendered whole.
        """
        mark = choose_mark([messages, tools])
        safe, safe_tools = self._markup.guard(messages, mark), self._markup.guard(tools, mark)
        first, second = _sentinel(), _sentinel()
        try:
            texts = [
                self.render(_with_answer(safe, answer, sentinel), safe_tools)
                for sentinel in (first, second)
            ]
        except TemplateFailed:
            return None
        halves = [text.split(s) for text, s in zip(texts, (first, second), strict=True)]
        if any(len(half) != 2 for half in halves) or halves[0] != halves[1]:
            return None
        suffix, new = halves[0][1], safe[answer + 1 :]
        literals = self._literals(safe, safe_tools, answer + 1)
        return self._encoded(suffix, mark, _places(suffix, new, literals), answer + 1)

    # --- who wrote what -----------------------------------------------------------------------

    def _literals(
        self, messages: list[Message], tools: list[Any] | None, first: int
    ) -> list[str] | None:
        """What the template writes between the texts of messages ``first``…: one piece more.

        The first piece begins after the answer before them, or at the very beginning. None if
        what is written depends on the texts, or does not stand in their order.
        """
        tries = []
        for _ in range(2):
            sentinels = [_sentinel() for _ in messages[first:]]
            pairs = zip(messages[first:], sentinels, strict=True)
            changed = messages[:first] + [{**m, "content": s} for m, s in pairs]
            answer = [_sentinel()] if first else []
            if first:
                changed = _with_answer(changed, first - 1, answer[0])
            try:
                pieces = _cut(self.render(changed, tools), answer + sentinels)
            except TemplateFailed:
                return None
            tries.append(pieces[len(answer) :] if pieces is not None else None)
        return tries[0] if tries[0] == tries[1] else None

    def _encoded(
        self, text: str, mark: str, places: list[tuple[int, int, int, str]] | None, first: int
    ) -> Rendered:
        """Encode a rendered text; ``places`` are its messages' characters."""
        plain = text.replace(mark, "")
        tokens, starts = self._with_offsets(text, mark)
        spans: list[Span] = []
        if places is not None and starts is not None:
            spans = _spans(starts, _unmarked(places, text, mark), first)
        return Rendered(tokens, spans, self._opens_reasoning(plain))

    def _with_offsets(self, text: str, mark: str) -> tuple[list[int], list[int] | None]:
        """Token ids, and the character of the unmarked text that each begins at if known."""
        inner = getattr(self._tokenizer, "_tokenizer", None)
        backend = getattr(inner, "backend_tokenizer", None)
        tokens = encode_marked(text, mark, self.encode)
        if backend is None:
            return tokens, None
        starts: list[int] = []
        base = 0
        for piece in text.split(mark):
            encoding = backend.encode(piece, add_special_tokens=False)
            starts += [base + start for start, _ in encoding.offsets]
            base += len(piece)
        return tokens, starts if len(starts) == len(tokens) else None

    def _opens_reasoning(self, text: str) -> bool:
        opening = getattr(self._tokenizer, "think_start", None)
        return bool(opening) and text.rstrip().endswith(str(opening))


Place = tuple[int, int, int, str]
"""First and last character of a message's text, the message's number, its role."""


def _sentinel() -> str:
    """A text that no template and no user has: letters alone, so that nothing is escaped."""
    return "Q" + "".join(chr(ord("a") + b % 26) for b in secrets.token_bytes(18)) + "Q"


def _with_answer(messages: list[Message], answer: int, text: str) -> list[Message]:
    """The messages with another text, and nothing but text, in the answer."""
    bare = {"role": messages[answer]["role"], "content": text}
    return [*messages[:answer], bare, *messages[answer + 1 :]]


def _cut(text: str, sentinels: list[str]) -> list[str] | None:
    """The pieces between sentinels that stand in order, each once."""
    pieces = []
    for sentinel in sentinels:
        if text.count(sentinel) != 1:
            return None
        before, text = text.split(sentinel)
        pieces.append(before)
    return [*pieces, text]


def _places(text: str, messages: list[Message], literals: list[str] | None) -> list[Place] | None:
    """Where each message's text stands in ``text``; None if it does not fit the literals."""
    if literals is None:
        return None
    places: list[Place] = []
    at = 0
    for number, (literal, message) in enumerate(zip(literals, messages, strict=False)):
        content = message.get("content") or ""
        bodies = (content, content.strip())
        body = next((b for b in bodies if text.startswith(literal + b, at)), None)
        if body is None:
            return None
        start = at + len(literal)
        at = start + len(body)
        places.append((start, at, number, str(message["role"])))
    return places if text[at:] == literals[-1] else None


def _unmarked(places: list[Place], text: str, mark: str) -> list[Place]:
    """Places in the text without its marks."""
    return [
        (s - text.count(mark, 0, s), e - text.count(mark, 0, e), n, role)
        for s, e, n, role in places
    ]


def _spans(starts: list[int], places: list[Place], first: int) -> list[Span]:
    """Tokens of each message's text, and of what the template writes before it and at the end."""
    spans: list[Span] = []
    token = 0
    for start, end, number, role in places:
        for border, name in ((start, "template"), (end, role)):
            begin = token
            while token < len(starts) and starts[token] < border:
                token += 1
            if token > begin:
                spans.append(Span(begin, token, name, first + number))
    if token < len(starts):
        spans.append(Span(token, len(starts), "template", first + len(places)))
    return spans
