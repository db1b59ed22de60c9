"""What a function prints and displays while no cell runs that could show it."""

from __future__ import annotations

import base64
import builtins
import io
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import Any, NoReturn

from IPython.core.getipython import get_ipython

_IMAGES = ("image/png", "image/jpeg", "image/svg+xml")
_TEXTS = ("text/markdown", "text/latex", "text/plain")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class Captured:
    """Takes what is printed and displayed while it is entered, by it and threads that it starts.

    ``input`` raises meanwhile: no cell is there to ask in.
    """

    def __init__(self) -> None:
        self._parts: list[str | _Shown] = []
        self._stack = ExitStack()

    @property
    def text(self) -> str:
        """What was printed by now, as a terminal shows it, and texts of what was displayed."""
        parts = [part for part in list(self._parts) if isinstance(part, str) or not part.image]
        texts = []
        for printed, group in groupby(parts, lambda part: isinstance(part, str)):
            if printed:
                texts.append(_settled("".join(map(str, group))))
            else:
                texts += [part.text for part in group if isinstance(part, _Shown)]
        *before, last = [text for text in texts if text] or [""]
        return "\n".join([*(text.removesuffix("\n") for text in before), last])

    @property
    def images(self) -> list[str]:
        """Displayed images, as addresses that hold them."""
        shown = [part for part in list(self._parts) if isinstance(part, _Shown)]
        return [part.image for part in shown if part.image]

    def __enter__(self) -> Captured:
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        with ExitStack() as stack:
            stack.callback(setattr, builtins, "input", builtins.input)
            builtins.input = _no_input
            publisher: Any = getattr(get_ipython(), "display_pub", None)
            if hasattr(publisher, "register_hook"):  # a kernel's; its place must not be taken
                publisher.register_hook(self._display)
                stack.callback(publisher.unregister_hook, self._display)
            for stream, redirect in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
                own = _Stream(stream, self._parts.append, others)
                stack.callback(own.end)
                stack.enter_context(redirect(own))
            self._stack = stack.pop_all()
        return self

    def _display(self, message: Mapping[str, Any]) -> None:
        """Take a message that would go to the front end."""
        if message["header"]["msg_type"] == "clear_output":
            self._parts.clear()
            return
        content = message["content"]
        name = content.get("transient", {}).get("display_id")
        new = _Shown(name, _text(content["data"]), _image(content["data"]))
        for at, part in enumerate(self._parts):
            if name is not None and isinstance(part, _Shown) and part.name == name:
                self._parts[at] = new
                return
        self._parts.append(new)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            _show_figures()


@dataclass(frozen=True, slots=True)
class _Shown:
    """What was displayed: under which display id, if any, and as what it is shown."""

    name: str | None
    text: str
    image: str | None


class _Stream(io.TextIOBase):
    """Takes what is written, until it has ended: who has kept it writes as before then.

    Parameters
    ----------
    stream
        What it stands in front of.
    others
        Threads whose words are not for it.
    """

    def __init__(self, stream: Any, take: Callable[[str], object], others: set[int | None]) -> None:
        self._stream, self._others = stream, others
        self._take: Callable[[str], object] | None = take

    def write(self, text: str) -> int:
        """See `io.TextIOBase.write`."""
        take = self._take
        if take is None or threading.get_ident() in self._others:
            return int(self._stream.write(text) or 0)
        take(str(text))
        return len(text)

    def flush(self) -> None:
        """See `io.TextIOBase.flush`."""
        self._stream.flush()

    def close(self) -> None:
        """Nothing: it is not the function's to close."""

    def writable(self) -> bool:
        """See `io.TextIOBase.writable`."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream behind it."""
        return str(getattr(self._stream, "encoding", None) or "utf-8")

    def end(self) -> None:
        """Take nothing more."""
        self._take = None


def _settled(text: str) -> str:
    """What is left to see of a text on a terminal: of a line that was written over, its last."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(next((p for p in reversed(line.split("\r")) if p), "") for line in lines)


def _image(data: Mapping[str, Any]) -> str | None:
    for kind in _IMAGES:
        if kind in data:
            content = str(data[kind])
            if kind.endswith("xml"):
                content = base64.b64encode(content.encode()).decode()
            return f"data:{kind};base64,{''.join(content.split())}"
    return None


def _text(data: Mapping[str, Any]) -> str:
    return next((str(data[kind]) for kind in _TEXTS if kind in data), "")


def _no_input(prompt: object = "") -> NoReturn:
    raise RuntimeError("a function that a chat calls cannot ask with input()")


def _show_figures() -> None:
    """Show what was drawn and not shown yet, as the end of a cell does."""
    inline = sys.modules.get("matplotlib_inline.backend_inline")
    if inline is not None:
        inline.flush_figures()
