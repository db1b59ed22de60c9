"""An answer on a cell's output as it grows. One view a turn; only the main thread shows."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from typing import Any

from mlxnb.engine.events import Event, Piece, Prefill
from mlxnb.notebook.box import described, footer, html
from mlxnb.notebook.fence import FirstFence
from mlxnb.notebook.markdown import to_html
from mlxnb.notebook.pace import Pace
from mlxnb.notebook.plain import plain
from mlxnb.records.turn import Turn

PATIENCE_S = 0.5
"""A prefill that takes longer shows how far it is."""


class View(ABC):
    """Shows the events of one turn."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._text: list[str] = []

    @abstractmethod
    def show(self, event: Event) -> None:
        """Take one event; the first piece of an answer is shown at once."""

    @abstractmethod
    def close(self, turn: Turn | None) -> None:
        """Show all there is, finally: all of the turn, where it is there."""

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

    def show(self, event: Event) -> None:
        """See `View.show`."""
        if isinstance(event, Piece) and event.kind != "reasoning":
            self._text.append(event.text)
            self._waiting.append(self._shown(event))
            if self._waiting[-1] and self._pace.due:
                self._pace.show(self._flush)

    def _shown(self, piece: Piece) -> str:
        call = piece.call
        return plain(piece.text if call is None else f"\n[call {described(call)}]\n")

    def _flush(self) -> int:
        text = "".join(self._waiting)
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
        complete = turn is not None and turn.finish_reason not in ("cancelled", "error")
        if complete and not self._fence.found:
            print("the answer has no fenced code; -f text shows it", file=sys.stderr, flush=True)


class MarkdownView(View):
    """The answer as rendered Markdown in a box of its own, with a line of facts under it.

    Parameters
    ----------
    progress
        Show how far a long prefill is.
    """

    def __init__(self, progress: bool = True) -> None:
        from IPython.display import DisplayHandle

        super().__init__()
        self._handle: Any = DisplayHandle()  # type: ignore[no-untyped-call]
        self._progress = progress
        to_html("")  # its libraries are imported before the turn, not at the first token
        self._begin = time.monotonic()
        self._displayed = False
        self._reasoning: list[str] = []
        self._calls: list[str] = []

    def show(self, event: Event) -> None:
        """See `View.show`."""
        if isinstance(event, Prefill):
            self._show_prefill(event)
        elif isinstance(event, Piece):
            first = not (self._text or self._reasoning or self._calls)
            self._take(event)
            if first or self._pace.due:
                self._pace.show(self._publish)

    def _show_prefill(self, event: Prefill) -> None:
        late = time.monotonic() - self._begin > PATIENCE_S
        if self._progress and late and event.done < event.total and self._pace.due:
            self._pace.show(lambda: self._publish(f"prefill {event.done:,}/{event.total:,}"))

    def _take(self, piece: Piece) -> None:
        if piece.call is not None:
            self._calls.append(described(piece.call))
        else:
            (self._text if piece.kind == "text" else self._reasoning).append(piece.text)

    def _publish(self, note: str = "", final: bool = False) -> int:
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        page = html(text, reasoning, self._calls, note, final)
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
        facts = footer(turn) if turn is not None else ""
        self._pace.show(lambda: self._publish(facts, final=True))
