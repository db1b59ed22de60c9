"""An answer on a cell's output as it grows. One view a turn; only the main thread shows."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from typing import Any

from mlxnb.engine.events import Event, Piece, Prefill
from mlxnb.notebook.box import footer, html
from mlxnb.notebook.fence import FirstFence
from mlxnb.notebook.pace import Pace
from mlxnb.records.turn import Turn

PATIENCE_S = 0.5
"""A prefill that takes longer shows how far it is."""


class View(ABC):
    """Shows the events of one turn."""

    @abstractmethod
    def show(self, event: Event) -> None:
        """Take one event; the first piece of an answer is shown at once."""

    @abstractmethod
    def close(self, turn: Turn | None) -> None:
        """Show all there is, finally."""


class TextView(View):
    """The visible text on stdout, and nothing that differs from run to run."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._waiting: list[str] = []
        self._last = ""

    def show(self, event: Event) -> None:
        """See `View.show`."""
        if isinstance(event, Piece) and (text := self._shown(event)):
            self._waiting.append(text)
            if self._pace.due:
                self._pace.show(self._flush)

    def _shown(self, piece: Piece) -> str:
        if piece.call is not None:
            return f"\n[call {piece.call.id}: {piece.call.name} {piece.call.arguments}]\n"
        return piece.text if piece.kind == "text" else ""

    def _flush(self) -> int:
        text = "".join(self._waiting)
        self._waiting.clear()
        self._last = text[-1:] or self._last
        sys.stdout.write(text)
        sys.stdout.flush()
        return len(text)

    def close(self, turn: Turn | None) -> None:
        """See `View.close`; ends the line."""
        self._flush()
        if self._last not in ("", "\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()


class CodeView(TextView):
    """The first fenced block of code on stdout, without its fences."""

    def __init__(self) -> None:
        super().__init__()
        self._fence = FirstFence()

    def _shown(self, piece: Piece) -> str:
        return self._fence.feed(piece.text) if piece.kind == "text" else ""

    def close(self, turn: Turn | None) -> None:
        """See `View.close`; says so if there was no code."""
        self._waiting.append(self._fence.finish())
        super().close(turn)
        if not self._fence.found:
            print("the answer has no fenced code; -f text shows it", file=sys.stderr, flush=True)


class MarkdownView(View):
    """The answer as rendered Markdown in a box of its own, with a line of facts under it."""

    def __init__(self, progress: bool = True) -> None:
        from IPython.display import DisplayHandle

        self._handle: Any = DisplayHandle()  # type: ignore[no-untyped-call]
        self._pace = Pace()
        self._progress = progress
        self._begin = time.monotonic()
        self._displayed = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[str] = []

    def show(self, event: Event) -> None:
        """See `View.show`."""
        if isinstance(event, Prefill):
            late = time.monotonic() - self._begin > PATIENCE_S
            if self._progress and late and event.done < event.total and self._pace.due:
                note = f"prefill {event.done:,}/{event.total:,}"
                self._pace.show(lambda: self._publish(note, final=False))
            return
        if not isinstance(event, Piece):
            return
        first = not (self._text or self._reasoning or self._calls)
        self._take(event)
        if first or self._pace.due:
            self._pace.show(lambda: self._publish("", final=False))

    def _take(self, piece: Piece) -> None:
        if piece.call is not None:
            self._calls.append(f"{piece.call.id}: {piece.call.name} {piece.call.arguments}")
        else:
            (self._text if piece.kind == "text" else self._reasoning).append(piece.text)

    def _publish(self, note: str, final: bool) -> int:
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        page = html(text, reasoning, self._calls, note, final)
        bundle = {"text/html": page, "text/plain": text}
        if self._displayed:
            self._handle.update(bundle, raw=True)
        else:
            self._handle.display(bundle, raw=True)
        self._displayed = True
        return len(page) + len(text)

    def close(self, turn: Turn | None) -> None:
        """See `View.close`."""
        self._publish(footer(turn) if turn is not None else "", final=True)
