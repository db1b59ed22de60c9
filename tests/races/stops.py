"""Run a command while its processes stand still at random, as on a machine whose host is busy.

``python stops.py COMMAND...``; its exit code is the command's.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil

STILL_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5)
BETWEEN_S = 0.8
"""The longest time in which all of them run."""


def main(command: list[str]) -> int:
    """Run it; of its processes one, a few or all stand still, again and again."""
    with subprocess.Popen(command) as running:
        root = psutil.Process(running.pid)
        while running.poll() is None:
            still = _some(root)
            try:
                _send(still, signal.SIGSTOP)
                time.sleep(random.choice(STILL_S))
            finally:
                _send(still, signal.SIGCONT)
            time.sleep(random.random() * BETWEEN_S)
    return running.returncode


def _some(root: psutil.Process) -> list[psutil.Process]:
    there = [root]
    with suppress(psutil.NoSuchProcess):
        there += root.children(recursive=True)
    return random.sample(there, min(len(there), random.choice([1, 1, 2, 3, len(there)])))


def _send(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
