"""A scripted model's code that can be made to wait, in whatever process it runs.

It waits before a step while there is a file ``gate`` beside it that lets no more steps through,
and when it is built while there is a file ``loading``.
"""

import time
from pathlib import Path
from typing import Any

from scripted.model import Model as Scripted
from scripted.model import ModelArgs

__all__ = ["Model", "ModelArgs"]
HERE = Path(__file__).parent
GATE, REACHED, LOADING = HERE / "gate", HERE / "reached", HERE / "loading"


class Model(Scripted):
    """Counts the steps that a gate has let through."""

    def __init__(self, args: Any) -> None:
        while LOADING.exists():
            _wait()
        super().__init__(args)
        self.passed, self.gate = 0, ""
        self.on_call = self.pause

    def pause(self) -> None:
        while self.is_shut():
            _wait()
        self.passed += 1

    def is_shut(self) -> bool:
        try:
            gate, calls = GATE.read_text().split()
        except FileNotFoundError:
            return False
        if gate != self.gate:
            self.gate, self.passed = gate, 0
        return self.passed >= int(calls)


def _wait() -> None:
    REACHED.touch()
    time.sleep(0.005)
