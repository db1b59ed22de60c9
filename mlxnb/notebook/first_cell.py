"""The cell that loads the extension may go on with prompts.

IPython has rewritten all of that cell before its first line runs, so that the rules of
`mlxnb.notebook.verbatim` come too late for it: ``%mlx_chat Why?`` is a request for help on
``Why`` by then. While that cell runs, such requests go to the magic that was meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell

from mlxnb.notebook.verbatim import LINES

_PROMPT = re.compile(rf"\s*%({'|'.join(LINES)})\s+(.*\?)\s*")
_HELP = re.compile(r"get_ipython\(\)\.run_line_magic\('(pinfo2?|psearch)', (.*)\)\n")

Call = tuple[str, str]
"""The name of a line magic, and its line."""


class FirstCell:
    """Answers the requests for help that a cell's prompts have become, each once and in order.

    Parameters
    ----------
    source
        The cell, as it was typed.
    """

    def __init__(self, shell: InteractiveShell, source: str) -> None:
        self._shell = shell
        self._meant = [(call, meant) for meant in _prompts(source) if (call := _read_as(*meant))]
        self._own: dict[str, Any] = {}

    def install(self) -> None:
        """Stand in for the magics that give help, until the cell has ended."""
        for name in {call[0] for call, _ in self._meant}:
            self._own[name] = self._magics[name]
            self._magics[name] = self._instead(name)
        if self._own:
            self._shell.events.register("post_run_cell", self._remove)

    @property
    def _magics(self) -> dict[str, Any]:
        return self._shell.magics_manager.magics["line"]  # type: ignore[no-any-return]

    def _instead(self, name: str) -> Callable[[str], Any]:
        def magic(line: str) -> Any:
            if self._meant and self._meant[0][0] == (name, line):
                return self._shell.run_line_magic(*self._meant.pop(0)[1])
            return self._help(name, line)

        return magic

    def _help(self, name: str, line: str) -> Any:
        """Help indeed, by the magic in its place: some look themselves up there."""
        instead, self._magics[name] = self._magics[name], self._own[name]
        try:
            return self._shell.run_line_magic(name, line)
        finally:
            self._own[name], self._magics[name] = self._magics[name], instead

    def _remove(self, _: object) -> None:
        self._magics.update(self._own)
        self._shell.events.unregister("post_run_cell", self._remove)


def _prompts(source: str) -> Iterator[Call]:
    """Magics and texts of the lines that IPython may take for requests for help."""
    found = (_PROMPT.fullmatch(line) for line in source.split("\n"))
    return ((each[1], each[2]) for each in found if each)


def _read_as(name: str, text: str) -> Call | None:
    """The request for help that IPython makes of such a line; None if it leaves it alone."""
    made = TransformerManager().transform_cell(f"%{name} {text}")  # type: ignore[no-untyped-call]
    found = _HELP.fullmatch(made)
    return (found[1], ast.literal_eval(found[2])) if found else None


def running_cell(shell: InteractiveShell) -> str:
    """The cell that runs now, as it was typed; empty where none does."""
    typed = shell.history_manager.input_hist_raw if shell.history_manager else [""]
    return str(typed[-1]) if typed else ""
