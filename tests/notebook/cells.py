"""Cells run in a shell of this process, and what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


@dataclass(frozen=True)
class Ran:
    """``error`` is what the cell raised; ``shown`` the MIME bundles that it displayed, in order."""

    value: Any
    error: BaseException | None
    stdout: str
    stderr: str
    shown: list[dict[str, Any]]

    @property
    def mistake(self) -> str:
        """The one line of a UsageError."""
        assert type(self.error) is UsageError, repr(self.error)
        assert self.stderr == f"UsageError: {self.error}\n"
        assert self.stdout == "" and self.stderr.count("\n") == 1
        return str(self.error)


@dataclass(frozen=True)
class Cells:
    """A shell with the magics loaded."""

    shell: InteractiveShell

    def run(self, source: str) -> Ran:
        with capture_output() as captured:
            result = self.shell.run_cell(source, store_history=False)
        error = result.error_in_exec or result.error_before_exec
        shown = [output.data for output in captured.outputs]
        return Ran(result.result, error, captured.stdout, captured.stderr, shown)

    def ok(self, source: str) -> Ran:
        """Run a cell that must not fail."""
        ran = self.run(source)
        assert ran.error is None, ran.error
        return ran

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.shell.user_ns[name] = value

    def complete(self, line: str) -> list[str]:
        """What completion offers at the end of a line, as a notebook asks for it."""
        completer = self.shell.Completer
        completer.use_jedi = False
        with provisionalcompleter():
            return [found.text for found in completer.completions(line, len(line))]
