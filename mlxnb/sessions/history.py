"""What a session has said and heard: its messages, and their tokens as they were generated.

With exact history the next prompt begins with the very tokens of the last prompt and its answer,
so that their KV can be continued; with template history it is rendered anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from mlxnb.records.turn import Span, ToolCall
from mlxnb.sessions.template import ChatTemplate, Message, Rendered


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a turn ended, to go back there: messages, tokens, and the last token."""

    messages: int
    tokens: int
    last: int | None
    spans: int


@dataclass(slots=True)
class History:
    """Messages of a conversation and, with exact history, their tokens.

    ``tokens`` is empty where nothing can be continued: before the first turn, with template
    history, and where the template would not have it.
    """

    messages: list[Message] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    pending: dict[str, str] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        """Turns that ended well."""
        return len(self.marks)

    def copy(self) -> History:
        """The same conversation, to go on differently."""
        return History(
            list(self.messages),
            list(self.tokens),
            list(self.spans),
            list(self.marks),
            dict(self.pending),
        )

    # --- the next prompt ----------------------------------------------------------------------

    def prompt(
        self,
        new: list[Message],
        template: ChatTemplate,
        tools: list[Any] | None,
        ends: frozenset[int],
    ) -> Rendered:
        """The next turn's prompt: the tokens there are, continued, or all of it rendered.

        Parameters
        ----------
        new
            Messages that come after those of the history.
        ends
            The model's end tokens; one that the answer ended with is not doubled.
        """
        if self.tokens:
            answer = len(self.messages) - 1
            suffix = template.continuation([*self.messages, *new], answer, tools)
            if suffix is not None:
                return self._continued(suffix, ends)
        return template.conversation([*self.messages, *new], tools)

    def _continued(self, suffix: Rendered, ends: frozenset[int]) -> Rendered:
        head, tail, spans = self.tokens, suffix.tokens, suffix.spans
        if head[-1] in ends:
            if tail[:1] == head[-1:]:
                tail, spans = tail[1:], _shifted(spans, -1)
            else:
                head = head[:-1]
        known = [replace(s, end=min(s.end, len(head))) for s in self.spans if s.start < len(head)]
        return Rendered(
            [*head, *tail], [*known, *_shifted(spans, len(head))], suffix.opens_reasoning
        )

    # --- the turn that has ended --------------------------------------------------------------

    def commit(
        self, new: list[Message], prompt: Rendered, output: list[int], answer: Message, exact: bool
    ) -> None:
        """Take a turn in: its messages, its prompt's tokens and those of the answer kept."""
        self.messages += [*new, answer]
        if prompt.tokens[: len(self.tokens) - 1] != self.tokens[:-1]:
            self.marks = [_without_tokens(mark) for mark in self.marks]
        self.tokens = [*prompt.tokens, *output] if exact else []
        number = len(self.messages) - 1
        self.spans = [*prompt.spans]
        if self.spans and output:
            start = len(prompt.tokens)
            self.spans.append(Span(start, start + len(output), "assistant", number))
        self.marks.append(self._mark())

    def _mark(self) -> Mark:
        last = self.tokens[-1] if self.tokens else None
        return Mark(len(self.messages), len(self.tokens), last, len(self.spans))

    def await_results(self, calls: list[ToolCall]) -> None:
        """Note the calls whose results must come next."""
        self.pending = {call.id: call.name for call in calls}

    def rewind(self, turns: int) -> None:
        """Forget the last turns; the tokens that stay are those that were there."""
        kept = self.marks[: len(self.marks) - turns]
        self.marks, self.pending = kept, {}
        if not kept:
            self.messages = [m for m in self.messages[:1] if m["role"] == "system"]
            self.tokens, self.spans = [], []
            return
        mark = kept[-1]
        self.messages = self.messages[: mark.messages]
        self.tokens = self.tokens[: mark.tokens]
        self.spans = self.spans[: mark.spans]
        if mark.last is not None:
            self.tokens[-1] = mark.last

    def forget_tokens(self) -> None:
        """Keep what was said and not its tokens: another model is to go on."""
        self.tokens, self.spans = [], []
        self.marks = [_without_tokens(mark) for mark in self.marks]


def _without_tokens(mark: Mark) -> Mark:
    """A place to go back to, from where all is rendered anew."""
    return replace(mark, tokens=0, last=None, spans=0)


def _shifted(spans: list[Span], by: int) -> list[Span]:
    moved = [replace(s, start=max(0, s.start + by), end=s.end + by) for s in spans]
    return [s for s in moved if s.end > s.start]
