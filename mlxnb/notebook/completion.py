"""Completion of the magics' options, and of the names of sessions and models they take."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)
from IPython.core.interactiveshell import InteractiveShell

from mlxnb.notebook.commands import COMMANDS, SESSION_HELP, VERBS
from mlxnb.notebook.loaded import loaded_models
from mlxnb.notebook.options import Argument, Command, Option

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine

_LINE = re.compile(r"\s*(?:\w+\s*=\s*)?%{1,2}(mlx_\w+)\s+(.*)", re.DOTALL)
_NAME = "mlxnb"


class Completion:
    """Completes lines that begin with one of the magics.

    Parameters
    ----------
    engine
        Asked for names only where an engine exists: completing makes none.
    """

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine

    def install(self, shell: InteractiveShell) -> None:
        """Add the completions to a shell, in place of what an earlier load has added."""
        matchers = shell.Completer.custom_matchers
        matchers[:] = [m for m in matchers if getattr(m, "matcher_identifier", "") != _NAME]
        matchers.append(self.match)

    @context_matcher(identifier=_NAME)  # type: ignore[untyped-decorator]
    def match(self, context: CompletionContext) -> SimpleMatcherResult:
        """What completes the text before the cursor; of other matchers' nothing, where it does."""
        word, found = self.candidates(context.text_until_cursor)
        fitting = [SimpleCompletion(text, type="param") for text in found if text.startswith(word)]
        return {
            "completions": fitting,
            "matched_fragment": word,
            "suppress": bool(fitting),
            "ordered": True,
        }

    def candidates(self, before: str) -> tuple[str, list[str]]:
        """The word under the cursor, and all that could stand there."""
        line = _LINE.fullmatch(before)
        command = COMMANDS.get(line[1]) if line is not None else None
        if line is None or command is None:
            return "", []
        *done, word = re.split(r"\s+", line[2])
        if command is SESSION_HELP:
            if not done:
                return word, list(VERBS)
            command = VERBS.get(done.pop(0), command)
        return word, self._of(command, done, word)

    def _of(self, command: Command, done: list[str], word: str) -> list[str]:
        last = command.option(done[-1]) if done else None
        if last is not None and last.metavar:
            return self._values(last)
        if word.startswith("-"):
            return [o.names[-1] for o in command.options if o.repeat or not set(o.names) & {*done}]
        taken = sum(not _belongs_to_option(command, done, at) for at in range(len(done)))
        return self._values(command.arguments[taken]) if taken < len(command.arguments) else []

    def _values(self, what: Option | Argument) -> list[str]:
        kind = what.complete
        if what.choices:
            return list(what.choices)
        if kind == "load":
            from mlxnb.models.discover import discover

            return [info.name for info in discover()]
        # nothing has a name before there is an engine, and the first one brings MLX
        if kind is None or "mlxnb.sessions.local" not in sys.modules:
            return []
        engine = self._engine()
        if kind in ("session", "warm"):
            return list(engine.sessions()["name"])
        return loaded_models(engine) if kind == "model" else []


def _belongs_to_option(command: Command, words: list[str], at: int) -> bool:
    """Whether a word is an option or the value of the one before it."""
    before = command.option(words[at - 1]) if at else None
    return words[at].startswith("-") or (before is not None and bool(before.metavar))
