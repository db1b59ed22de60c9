"""What a client that is installed by hand must be able to do, and the run that shows it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scripted import END

from .notebook import Notebook, notebook
from .outside import Outside, outside

SECRET = "The note says: heron."
PROMPT = "What does note.txt say?"
PATIENCE_S = 300.0


class Program:
    """A client's program in a home of its own, which reaches this machine and nothing else.

    Parameters
    ----------
    folder
        Its home and working directory.
    environment
        What it needs to know; of this process it gets the path alone.
    """

    def __init__(self, binary: str, folder: Path, environment: dict[str, str]) -> None:
        self._binary, self._folder = binary, folder
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **environment}

    def __call__(self, *arguments: str, timeout: float = PATIENCE_S) -> str:
        """What it prints; it must end well."""
        done = subprocess.run(
            [self._binary, *arguments],
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, f"status {done.returncode}: {done.stdout}\n{done.stderr}"
        return done.stdout.strip()


class Client:
    """A program, and how it is asked; subclasses say ``begin`` and ``go_on``, its arguments.

    Attributes
    ----------
    call
        The name of its tool that reads a file, and its arguments for ``note.txt``.
    """

    begin: Sequence[str]
    go_on: Sequence[str]

    def __init__(self, binary: str, folder: Path, served: Notebook, world: Outside) -> None:
        environment = world.environment | self.environment(folder, served)
        self.program = Program(binary, folder, environment)

    def environment(self, folder: Path, served: Notebook) -> dict[str, str]:
        """Where the notebook port is, its key, and no talk with anybody else."""
        raise NotImplementedError

    @staticmethod
    def call(note: Path) -> tuple[str, dict[str, object]]:
        """The tool that reads a file, and its arguments."""
        raise NotImplementedError

    def ask(self, prompt: str, timeout: float = PATIENCE_S) -> str:
        """Begin a conversation."""
        return self.program(*self.begin, prompt, timeout=timeout)

    def ask_again(self, prompt: str) -> str:
        """Go on with the newest one."""
        return self.program(*self.go_on, prompt)


def main(kind: type[Client]) -> None:
    """The command line of a client's script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", help="the installed program")
    parser.add_argument("--silence", type=float, default=360, help="seconds that a prefill takes")
    parser.add_argument("--record", type=Path, help="keep what it sent, as JSON lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, outside() as world:
        folder = Path(name)
        os.environ["MLXNB_STATE"] = str(folder / "state")
        with notebook(folder, _answers(folder, kind.call)) as served:
            client = kind(options.binary, folder, served, world)
            print(client.program("--version"))
            try:
                _rounds(client, served, options.silence)
            finally:
                print(served.turns().to_string())
                if options.record is not None:
                    served.save(options.record)
    print("tried to reach:", world.tried or "nobody else")


def _answers(folder: Path, call: Callable[[Path], tuple[str, dict[str, object]]]) -> list[str]:
    """A call that reads the note, and then what it says."""
    note = folder / "note.txt"
    note.write_text(f"{SECRET}\n")
    name, arguments = call(note)
    wanted = json.dumps({"name": name, "arguments": arguments})
    return [f"<tool_call>\n{wanted}\n</tool_call>{END}", f"{SECRET}{END}"]


def _rounds(client: Client, served: Notebook, silence_s: float) -> None:
    assert SECRET in client.ask(PROMPT)
    assert list(served.turns()["finish_reason"]) == ["tool_calls", "stop"]
    print("a prompt and a round of a tool: done")
    assert SECRET in client.ask_again("And again?")
    last = served.turns().iloc[-1]
    assert last["prefill_tokens"] < 0.02 * last["prompt_tokens"], "the conversation was reused"
    print("a second request: its reuse was seen")
    served.fall_silent(silence_s)
    begin = time.monotonic()
    assert SECRET in client.ask(f"{PROMPT} Please.", timeout=silence_s + PATIENCE_S)
    assert time.monotonic() - begin > silence_s
    assert list(served.turns()["finish_reason"])[-2:] == ["tool_calls", "stop"]
    print(f"a prefill of {silence_s:.0f} s: it waited")
