"""What a function prints and displays while no cell runs that could show it."""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from types import TracebackType
from typing import Any, NoReturn

from IPython.core.getipython import get_ipython

PNG = "image/png"


class Captured:
    """Takes what is printed, in threads too, and displayed while it is entered.

    ``input`` raises meanwhile: no cell is there to ask in.
    """

    def __init__(self) -> None:
        self._printed = io.StringIO()
        self._shown: dict[str, Mapping[str, Any]] = {}  # by display id, or in their order
        self._stack = ExitStack()

    @property
    def text(self) -> str:
        """What was printed by now, and then the texts of what was displayed."""
        texts = [str(data.get("text/plain", "")) for data in self._data if PNG not in data]
        return "\n".join(filter(None, [self._printed.getvalue(), *texts]))

    @property
    def images(self) -> list[str]:
        """Displayed images: PNG in base64."""
        return ["".join(str(data[PNG]).split()) for data in self._data if PNG in data]

    @property
    def _data(self) -> list[Mapping[str, Any]]:
        return list(self._shown.values())

    def __enter__(self) -> Captured:
        with ExitStack() as stack:
            stack.callback(setattr, builtins, "input", builtins.input)
            builtins.input = _no_input
            publisher: Any = getattr(get_ipython(), "display_pub", None)
            if hasattr(publisher, "register_hook"):  # a kernel's; its place must not be taken
                publisher.register_hook(self._display)
                stack.callback(publisher.unregister_hook, self._display)
            stack.enter_context(redirect_stdout(self._printed))
            stack.enter_context(redirect_stderr(self._printed))
            self._stack = stack.pop_all()
        return self

    def _display(self, message: Mapping[str, Any]) -> None:
        """Take a message that would go to the front end."""
        if message["header"]["msg_type"] == "clear_output":
            self._shown.clear()
            return
        content = message["content"]
        name = content.get("transient", {}).get("display_id") or f"#{len(self._shown)}"
        self._shown[name] = content["data"]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            if kind is None:
                _show_figures()


def _no_input(prompt: object = "") -> NoReturn:
    raise RuntimeError("a function that a chat calls cannot ask with input()")


def _show_figures() -> None:
    """Show what was drawn and not shown yet, as the end of a cell does."""
    inline = sys.modules.get("matplotlib_inline.backend_inline")
    if inline is not None:
        inline.flush_figures()
