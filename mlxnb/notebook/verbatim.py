"""Prompts reach the magic as they were typed.

IPython rewrites cells before it runs them: it reads a line that ends in ``?`` as a request for
help on its last word, ``%mlx_chat`` lines included, and takes ``>>>`` and ``In [1]:`` off a cell
whose second line begins with it, the body of a cell magic included. Neither may touch a prompt.
"""

from __future__ import annotations

import re
import tokenize
from collections.abc import Mapping
from typing import Any

from IPython.core.inputtransformer2 import EscapedCommand, MagicAssign, TokenTransformBase
from IPython.core.interactiveshell import InteractiveShell

LINES = ("mlx_chat", "mlx_compare")
"""Magics that take a prompt from their line, or from the lines below."""
CELLS = (*LINES, "mlx_map")
"""Magics that take one from the lines below."""


class ChatLine(EscapedCommand):
    """`%mlx_chat Why?` as a statement of its own."""

    priority = 1  # before HelpEnd, which has 5

    @classmethod
    def find(cls, tokens_by_line: list[list[Any]]) -> ChatLine | None:
        """The first such line."""
        for line in tokens_by_line:
            tokens = [t for t in line if t.type not in (tokenize.INDENT, tokenize.DEDENT)]
            if _is_chat(tokens):
                return cls(tokens[0].start)
        return None


class ChatAssign(TokenTransformBase):
    """`x = %mlx_chat Why?`."""

    priority = 1

    def __init__(self, start: tuple[int, int], magic: tuple[int, int]) -> None:
        # where the line starts, as HelpEnd has it: the earlier one would be taken
        super().__init__(start)  # type: ignore[no-untyped-call]
        self._magic = magic

    @classmethod
    def find(cls, tokens_by_line: list[list[Any]]) -> ChatAssign | None:
        """The first such assignment."""
        for line in tokens_by_line:
            for at, token in enumerate(line[:-1]):
                if token.string == "=" and _is_chat(line[at + 1 :]):
                    return cls(line[0].start, line[at + 1].start)
        return None

    def transform(self, lines: list[str]) -> list[str]:
        """The lines with the call in place of the magic."""
        assignment: Any = MagicAssign(self._magic)  # type: ignore[no-untyped-call]
        return list(assignment.transform(lines))


def _is_chat(tokens: list[Any]) -> bool:
    """Whether these are ``%mlx_chat``, a space and something; ``%mlx_chat?`` asks for help."""
    if len(tokens) < 3 or tokens[0].string != "%" or tokens[1].string not in LINES:
        return False
    return bool(tokens[2].start[0] == tokens[1].end[0] and tokens[2].start > tokens[1].end)


def chat_cell(lines: list[str]) -> list[str]:
    """A cell that begins with ``%%mlx_chat`` as the call that it means; any other unchanged."""
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    head = lines[first].rstrip() if lines else ""
    name = next(iter(head.split()), "").removeprefix("%%")
    if name not in CELLS or not head.startswith(f"%%{name}"):
        return lines
    line, body = head[len(name) + 2 :].strip(), "".join(lines[first + 1 :])
    return [f"get_ipython().run_cell_magic({name!r}, {line!r}, {body!r})\n"]


# A terminal asks whether a cell is complete; that is for IPython's own reading of cell magics.
chat_cell.has_side_effects = True  # type: ignore[attr-defined]


def filled(text: str, values: Mapping[str, str]) -> str:
    """``{name}`` replaced for the names in ``values``, at once: a value is never searched again."""
    if not values:
        return text
    names = "|".join(re.escape(name) for name in values)
    return re.sub(rf"\{{({names})\}}", lambda found: values[found[1]], text)


def installed(shell: InteractiveShell) -> bool:
    """Whether a shell leaves prompts alone."""
    return chat_cell in shell.input_transformers_cleanup


def install(shell: InteractiveShell) -> None:
    """Make a shell leave prompts alone; harmless when done twice."""
    manager = shell.input_transformer_manager
    for rule in (ChatAssign, ChatLine):
        if rule not in manager.token_transformers:
            manager.token_transformers.insert(0, rule)
    if chat_cell not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.insert(0, chat_cell)
