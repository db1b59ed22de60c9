"""The one thread that builds and evaluates MLX graphs.

MLX binds streams to threads: load, prefill, decode, save and unload all happen here. Others hand
in functions and wait. Its last act is to finish what is pending and clear its streams: a process
whose MLX thread ended without that was measured to abort at exit in a third of runs.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from mlxnb.errors import EngineDied

log = logging.getLogger(__name__)

T = TypeVar("T")


class Owner:
    """Runs ``work`` again and again while it returns True, and calls between.

    Parameters
    ----------
    work
        One step; returns False when there is nothing to do.
    idle
        Called once after ``idle_after`` seconds without work.
    stuck_after
        Seconds after which a single step or call counts as stuck.
    """

    def __init__(
        self,
        work: Callable[[], bool],
        idle: Callable[[], None] = lambda: None,
        idle_after: float = 30.0,
        stuck_after: float = 300.0,
    ) -> None:
        self.stuck_after = stuck_after
        self._work, self._idle, self._idle_after = work, idle, idle_after
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]
        self._calls = queue.SimpleQueue()
        self._busy_since: float | None = None
        self._stopping = False
        self._current: Future[Any] | None = None
        self._thread = threading.Thread(target=self._main, name="mlxnb-engine", daemon=True)
        atexit.register(self.stop)
        self._thread.start()

    # --- any thread ---------------------------------------------------------------------------

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the owner's thread and return what it returns.

        Raises
        ------
        EngineDied
            The thread is gone, or was stuck, before it had an answer.
        """
        if threading.current_thread() is self._thread:
            return function()
        future: Future[T] = Future()
        self._calls.put((function, future))
        while True:
            try:
                return future.result(timeout=0.5)
            except TimeoutError:
                if future.done():
                    raise
                if not self.healthy:
                    raise EngineDied(self.ailment) from None

    def wake(self) -> None:
        """There is work."""
        self._calls.put(None)

    @property
    def healthy(self) -> bool:
        """Whether the thread lives and its present step is not overdue."""
        return self._thread.is_alive() and not self._overdue

    @property
    def _overdue(self) -> bool:
        since = self._busy_since
        return since is not None and time.monotonic() - since > self.stuck_after

    @property
    def ailment(self) -> str:
        """What is wrong with an owner that is not healthy."""
        if not self._thread.is_alive():
            return "the engine's thread has died; the engine starts anew with the next request"
        return (
            f"the engine's thread has been stuck for {self.stuck_after:.0f} s; the engine starts "
            "anew with the next request"
        )

    def stop(self, timeout: float = 10.0) -> None:
        """Finish the present step and end the thread; harmless when done twice."""
        self._stopping = True
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        atexit.unregister(self.stop)

    # --- its own thread -----------------------------------------------------------------------

    def _main(self) -> None:
        import mlx.core as mx

        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:
            log.error("the engine's thread ended: %s", type(error).__name__)
        finally:
            self._fail_calls()
            mx.synchronize()
            mx.clear_streams()

    def _turn(self) -> None:
        """All calls that wait, then one step of work; sleeps where there is neither."""
        self._run_calls()
        self._busy_since = time.monotonic()
        worked = self._work()
        self._busy_since = None
        if worked or self._stopping:
            return
        try:
            item = self._calls.get(timeout=self._idle_after)
        except queue.Empty:
            self._idle()
            item = self._calls.get()
        self._run(item)

    def _run_calls(self) -> None:
        while not self._calls.empty():
            self._run(self._calls.get())

    def _run(self, item: tuple[Callable[[], Any], Future[Any]] | None) -> None:
        if item is None:
            return
        function, self._current = item
        self._busy_since = time.monotonic()
        try:
            self._current.set_result(function())
        except Exception as error:
            self._current.set_exception(error)
        finally:
            self._busy_since = None
        self._current = None

    def _fail_calls(self) -> None:
        waiting = [self._current] if self._current is not None else []
        while not self._calls.empty():
            item = self._calls.get()
            if item is not None:
                waiting.append(item[1])
        for future in waiting:
            if not future.done():
                future.set_exception(EngineDied("the engine's thread has ended"))
