"""Makes a model of another process wait, so that something can happen in the midst of an answer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from link.fake_host import until


class Gate:
    """The barrier of one model's folder; see `gated_model`."""

    def __init__(self, folder: Path, barrier: str) -> None:
        self._calls, self._name = 0, secrets.token_hex(4)
        self._barrier, self._reached = folder / barrier, folder / "reached"

    def close(self, calls: int) -> None:
        """Let ``calls`` steps through since this gate was first closed, and no others."""
        self._calls = calls
        self._reached.unlink(missing_ok=True)
        draft = self._barrier.with_suffix(".new")
        draft.write_text(f"{self._name} {calls}")
        draft.rename(self._barrier)

    def wait(self) -> None:
        """Wait until the model stands before it."""
        until(self._reached.exists)

    def trickle(self, until: Callable[[], bool], steps: int) -> None:
        """Let up to ``steps`` more through, each well after the last, until something is so."""
        for calls in range(self._calls + 1, self._calls + 1 + steps):
            if until():
                return
            self.close(calls)
            time.sleep(0.05)

    def open(self) -> None:
        """Let the model go on."""
        self._barrier.unlink(missing_ok=True)


@contextmanager
def gated(folder: Path, calls: int = 0, barrier: str = "gate") -> Iterator[Gate]:
    """Close a gate for a while."""
    gate = Gate(folder, barrier)
    gate.close(calls)
    try:
        yield gate
    finally:
        gate.open()
