"""An answer on a cell's output as it grows. One view a turn; only the main thread shows."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Container
from typing import Any

from mlxnb.engine.events import Event, Piece, Prefill
from mlxnb.notebook.box import aside, described, footer, html
from mlxnb.notebook.fence import FirstFence
from mlxnb.notebook.markdown import to_html
from mlxnb.notebook.pace import Pace
from mlxnb.notebook.plain import plain
from mlxnb.records.turn import ToolCall, Turn
from mlxnb.sessions.exported_markdown import fenced

PATIENCE_S = 0.5
"""A prefill that takes longer shows how far it is."""


class View(ABC):
    """Shows the events of one turn.

    Attributes
    ----------
    number, of
        Which of how many answers to the same prompt it shows.
    answered
        Names of tools whose calls are answered without the user.
    calls_only
        The answer must be calls: text that comes is what is left of one, until the end says
        otherwise.
    """

    def __init__(self) -> None:
        self.number, self.of = 1, 1
        self.answered: Container[str] = ()
        self.calls_only = False
        self._pace = Pace()
        self._text: list[str] = []

    @abstractmethod
    def show(self, event: Event) -> None:
        """Take one event; the first piece of an answer is shown at once."""

    @abstractmethod
    def close(self, turn: Turn | None) -> None:
        """Show all there is, finally: all of the turn, where it is there."""

    def say(self, line: str) -> None:
        """Show something that is no part of the answer."""
        print(f"[{line}]", flush=True)

    def show_others(self, turn: Turn | None) -> None:
        """Show the other answers of a turn that has several, each in a view of its own."""
        choices = [] if turn is None else turn.choices
        for number, choice in enumerate(choices[1:], 2):
            other = self._another()
            other.number, other.of = number, len(choices)
            for call in choice.tool_calls:
                other.show(Piece("tool_call", call=call))
            other.close(choice)

    def _another(self) -> View:
        return type(self)()

    def _waits(self, event: Event) -> bool:
        """Whether a piece is not shown until the turn has ended."""
        return self.calls_only and isinstance(event, Piece) and event.kind == "text"

    def _described(self, call: ToolCall) -> str:
        return described(call, self.answered)

    @property
    def _name(self) -> str:
        """Which of several answers it is; empty for the only one."""
        return f"{self.number} of {self.of}" if self.of > 1 else ""

    def _missing(self, turn: Turn | None) -> str:
        """Text of a turn that no event has brought, as when an interrupt came between."""
        known = "".join(self._text)
        there = turn is not None and turn.text.startswith(known)
        return turn.text[len(known) :] if turn is not None and there else ""


class TextView(View):
    """The visible text on stdout, and nothing that differs from run to run."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[str] = []
        self._last = ""
        self._begun = False

    def show(self, event: Event) -> None:
        """See `View.show`."""
        if self._waits(event):
            return
        if isinstance(event, Piece) and event.kind in ("text", "tool_call"):  # calls come whole
            self._text.append(event.text)
            self._waiting.append(self._shown(event))
            if self._waiting[-1] and self._pace.due:
                self._pace.show(self._flush)

    def _shown(self, piece: Piece) -> str:
        call = piece.call
        return plain(piece.text if call is None else f"\n[call {self._described(call)}]\n")

    def _flush(self) -> int:
        head = f"[{self._name}]\n" if self._name and not self._begun else ""
        text, self._begun = head + "".join(self._waiting), True
        self._waiting.clear()
        self._last = text[-1:] or self._last
        sys.stdout.write(text)
        sys.stdout.flush()
        return len(text)

    def close(self, turn: Turn | None) -> None:
        """See `View.close`; ends the line."""
        self._waiting.append(self._shown(Piece("text", self._missing(turn))))
        self._finish()

    def _finish(self) -> None:
        if ("".join(self._waiting)[-1:] or self._last) not in ("", "\n"):
            self._waiting.append("\n")
        self._pace.show(self._flush)


class CodeView(TextView):
    """The first fenced block of code on stdout, without its fences."""

    def __init__(self) -> None:
        super().__init__()
        self._fence = FirstFence()

    def _shown(self, piece: Piece) -> str:
        return plain(self._fence.feed(piece.text))

    def close(self, turn: Turn | None) -> None:
        """See `View.close`; says so if there was no code."""
        rest = self._shown(Piece("text", self._missing(turn)))
        self._waiting += [rest, plain(self._fence.finish())]
        self._finish()
        unfinished = ("cancelled", "error", "tool_calls")
        complete = turn is not None and turn.finish_reason not in unfinished
        if complete and not self._fence.found:
            print("the answer has no fenced code; -f text shows it", file=sys.stderr, flush=True)


class MarkdownView(View):
    """The answer as rendered Markdown in a box of its own, with a line of facts under it.

    Parameters
    ----------
    progress
        Show how far a long prefill is.
    language
        Show the text as code in this language instead.
    """

    def __init__(self, progress: bool = True, language: str = "") -> None:
        from IPython.display import DisplayHandle

        super().__init__()
        self._handle: Any = DisplayHandle()  # type: ignore[no-untyped-call]
        self._progress, self._language = progress, language
        to_html("")  # its libraries are imported before the turn, not at the first token
        self._begin = time.monotonic()
        self._displayed = False
        self._reasoning: list[str] = []
        self._calls: list[str] = []

    def show(self, event: Event) -> None:
        """See `View.show`."""
        if self._waits(event):
            return
        if isinstance(event, Prefill):
            self._show_prefill(event)
        elif isinstance(event, Piece) and event.kind not in ("tool_start", "tool_arguments"):
            first = not (self._text or self._reasoning or self._calls)
            self._take(event)
            if first or self._pace.due:
                self._pace.show(self._publish)

    def _another(self) -> View:
        return MarkdownView(self._progress, self._language)

    def say(self, line: str) -> None:
        """See `View.say`; in a box of its own."""
        from IPython.display import display

        bundle = {"text/html": aside(line), "text/plain": line}
        display(bundle, raw=True)  # type: ignore[no-untyped-call]

    def _show_prefill(self, event: Prefill) -> None:
        late = time.monotonic() - self._begin > PATIENCE_S
        if self._progress and late and event.done < event.total and self._pace.due:
            self._pace.show(lambda: self._publish(f"prefill {event.done:,}/{event.total:,}"))

    def _take(self, piece: Piece) -> None:
        if piece.call is not None:
            self._calls.append(self._described(piece.call))
        else:
            (self._text if piece.kind == "text" else self._reasoning).append(piece.text)

    def _publish(self, note: str = "", final: bool = False) -> int:
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        written = fenced(text, self._language) if self._language and text else text
        page = html(written, reasoning, self._calls, note, final)
        bundle = {"text/html": page, "text/plain": plain(text)}
        if self._displayed:
            self._handle.update(bundle, raw=True)
        else:
            self._handle.display(bundle, raw=True)
        self._displayed = True
        return len(page) + len(text)

    def close(self, turn: Turn | None) -> None:
        """See `View.close`."""
        self._text.append(self._missing(turn))
        if turn is not None and turn.reasoning:
            self._reasoning = [turn.reasoning]
        facts = " · ".join(filter(None, [self._name, footer(turn) if turn is not None else ""]))
        self._pace.show(lambda: self._publish(facts, final=True))
