"""Makes a model of another process wait, so that something can happen in the midst of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from link.fake_host import until


class Gate:
    """The barrier of one model's folder; see `gated_model`."""

    def __init__(self, folder: Path, barrier: str) -> None:
        self._barrier, self._reached = folder / barrier, folder / "reached"

    def close(self, calls: int) -> None:
        """Let ``calls`` steps through since it was first closed, and no others."""
        self._reached.unlink(missing_ok=True)
        draft = self._barrier.with_suffix(".new")
        draft.write_text(str(calls))
        draft.rename(self._barrier)

    def wait(self) -> None:
        """Wait until the model stands before it."""
        until(self._reached.exists)

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
