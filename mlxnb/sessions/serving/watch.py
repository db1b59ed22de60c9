"""What a service does by itself, now and then, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)


class Watch:
    """Calls functions at intervals until it is closed. What one raises is logged.

    Parameters
    ----------
    tasks
        Seconds between two calls, by the function.
    """

    def __init__(self, tasks: Mapping[Callable[[], None], float]) -> None:
        self._tasks = dict(tasks)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mlxnb-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = {task: time.monotonic() + every for task, every in self._tasks.items()}
        while not self._closed.wait(max(0.0, min(due.values()) - time.monotonic())):
            for task, at in due.items():
                if at <= time.monotonic():
                    self._call(task)
                    due[task] = time.monotonic() + self._tasks[task]

    def _call(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:
            log.error("%s failed: %s", getattr(task, "__name__", "a task"), type(error).__name__)

    def close(self) -> None:
        """End it; a function that runs is waited for."""
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
