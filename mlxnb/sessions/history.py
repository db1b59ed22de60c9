"""What a session has said and heard: its messages, and their tokens as they were generated.

With exact history the next prompt begins with the very tokens of the last prompt and its answer,
so that their KV can be continued; with template history it is rendered anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlxnb.records.turn import Span
from mlxnb.sessions.messages import Message
from mlxnb.sessions.template import ChatTemplate, Rendered


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Tokens of a conversation, and whose they are; what continues it makes a longer one.

    End tokens of answers are the template's to write: a line ends before its last one.
    """

    tokens: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def cut(self, length: int) -> Line:
        """The first tokens of it."""
        return Line(self.tokens[:length], [s for s in self.spans if s.end <= length])

    def joined(self, suffix: Rendered) -> Rendered:
        """A prompt that begins with these tokens."""
        at = len(self.tokens)
        moved = [replace(s, start=s.start + at, end=s.end + at) for s in suffix.spans]
        spans = [*self.spans, *moved] if self.spans else []
        return Rendered([*self.tokens, *suffix.tokens], spans, suffix.opens_reasoning)

    def begins(self, prompt: Rendered) -> bool:
        """Whether a prompt continues this line."""
        return bool(self.tokens) and prompt.tokens[: len(self.tokens)] == self.tokens


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a turn ended: so many messages, and so many tokens of a line."""

    messages: int
    line: Line
    length: int

    def on(self, old: Line, new: Line) -> Mark:
        """The same place on a line that begins like the old one."""
        return replace(self, line=new) if self.line is old else self


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """A conversation so far; it never changes, what follows makes another one.

    ``line`` has no tokens where nothing can be continued: before the first turn, with template
    history, and after the model was changed.
    """

    messages: tuple[Message, ...] = ()
    line: Line = field(default_factory=Line)
    marks: tuple[Mark, ...] = ()

    @property
    def turns(self) -> int:
        """Turns that ended well."""
        return len(self.marks)

    @property
    def pending(self) -> dict[str, str]:
        """Ids and names of the calls whose results must come next."""
        calls = self.messages[-1].get("tool_calls", ()) if self.messages else ()
        return {call["id"]: call["function"]["name"] for call in calls}

    def prompt(
        self, new: Sequence[Message], template: ChatTemplate, tools: list[Any] | None
    ) -> Rendered:
        """The next turn's prompt: the tokens there are, continued, or all of it rendered.

        Parameters
        ----------
        new
            Messages that come after those of the history.

        Raises
        ------
        TemplateFailed
            The template refuses the messages.
        """
        messages = [*self.messages, *new]
        if self.line.tokens:
            suffix = template.continuation(messages, len(self.messages) - 1, tools)
            if suffix is not None:
                return self.line.joined(suffix)
        return template.conversation(messages, tools)

    def after(
        self, new: Sequence[Message], answer: Message, prompt: Rendered | None, output: list[int]
    ) -> History:
        """The history with one more turn.

        Parameters
        ----------
        prompt, output
            The turn's tokens, the answer's end token left out; None: none are kept.
        """
        messages = (*self.messages, *new, answer)
        line = Line() if prompt is None else _line(prompt, output, len(messages) - 1)
        marks = self.marks
        if prompt is not None and self.line.begins(prompt):
            marks = tuple(mark.on(self.line, line) for mark in marks)
        return History(messages, line, (*marks, Mark(len(messages), line, len(line.tokens))))

    def rewound(self, turns: int) -> History:
        """The history without its last turns; tokens that stay are those that were there."""
        marks = self.marks[: len(self.marks) - turns]
        if not marks:
            return History(tuple(m for m in self.messages[:1] if m["role"] == "system"))
        last = marks[-1]
        line = last.line.cut(last.length)
        return History(
            self.messages[: last.messages], line, tuple(m.on(last.line, line) for m in marks)
        )

    def without_tokens(self) -> History:
        """What was said and not its tokens: another model is to go on."""
        line = Line()
        return History(self.messages, line, tuple(Mark(m.messages, line, 0) for m in self.marks))


def _line(prompt: Rendered, output: list[int], answer: int) -> Line:
    """A prompt and its answer, which is message number ``answer``."""
    spans, at = list(prompt.spans), len(prompt.tokens)
    if spans and output:
        spans.append(Span(at, at + len(output), "assistant", answer))
    return Line([*prompt.tokens, *output], spans)
