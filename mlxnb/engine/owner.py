"""The one thread that builds and evaluates MLX graphs.

MLX binds streams to threads: load, prefill, decode, save and unload all happen here. Others hand
in functions and wait. Its last act is to finish what is pending and hand its stream on: a process
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

from mlxnb.engine.stream import hand_on, take_stream
from mlxnb.errors import EngineDied

log = logging.getLogger(__name__)

T = TypeVar("T")
Call = tuple[Callable[[], Any], Future[Any]]

WATCH_S = 5.0
"""Seconds between two looks of an owner without work."""
POLL_S = 0.1
"""Seconds between two looks at the thread's health while a call waits."""


class Owner:
    """Runs ``work`` again and again while it returns True, and calls between.

    Parameters
    ----------
    work
        One step; returns False when there is nothing to do.
    idle
        Called once after ``idle_after`` seconds without work.
    watch
        Called every `WATCH_S` seconds while there is no work.
    last
        Called when the thread has been told to end, before it does.
    stuck_after
        Seconds after which a single step or call counts as stuck.

    Attributes
    ----------
    stopping
        The thread has been told to end.
    """

    def __init__(
        self,
        work: Callable[[], bool],
        idle: Callable[[], None] = lambda: None,
        idle_after: float = 30.0,
        stuck_after: float = 300.0,
        watch: Callable[[], None] = lambda: None,
        last: Callable[[], None] = lambda: None,
    ) -> None:
        self.stuck_after = stuck_after
        self._work, self._idle, self._idle_after = work, idle, idle_after
        self._watch, self._last = watch, last
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._busy_since: float | None = None
        self.stopping = False
        self._over = False
        self._current: Future[Any] | None = None
        self._thread = threading.Thread(target=self._main, name="mlxnb-engine", daemon=True)
        atexit.register(self.stop)
        self._thread.start()

    # --- any thread ---------------------------------------------------------------------------

    def call(self, function: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> T:
        """Run a function on the owner's thread and return what it returns.

        ``meanwhile`` is called now and then on the thread that waits.

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
                return future.result(timeout=POLL_S)
            except TimeoutError:
                if future.done():  # by now, or with an error of this kind
                    return future.result()
                if not self.healthy:
                    raise EngineDied(self.ailment) from None
                meanwhile()

    def wake(self) -> None:
        """There is work."""
        self._calls.put(None)

    @property
    def healthy(self) -> bool:
        """Whether the thread lives and its present step is not overdue."""
        return not (self._over or self._overdue) and self._thread.is_alive()

    @property
    def _overdue(self) -> bool:
        since = self._busy_since
        return since is not None and time.monotonic() - since > self.stuck_after

    @property
    def ailment(self) -> str:
        """What is wrong with an owner that is not healthy."""
        if self._over or not self._thread.is_alive():
            return "the engine's thread has died; the engine starts anew with the next request"
        return (
            f"the engine's thread has been stuck for {self.stuck_after:.0f} s; the engine starts "
            "anew with the next request"
        )

    def stop(self, timeout: float = 10.0) -> None:
        """Finish the present step and end the thread; harmless when done twice.

        A thread that is stuck is given another chance when the process exits.
        """
        self.stopping = True
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        if not self._thread.is_alive():
            atexit.unregister(self.stop)

    # --- its own thread -----------------------------------------------------------------------

    def beat(self) -> None:
        """Tell, in the midst of a long call, that it goes on."""
        self._busy_since = time.monotonic()

    def _main(self) -> None:
        stream = take_stream()
        try:
            while not self.stopping:
                self._turn()
            self._last()
        except BaseException as error:
            log.error("the engine's thread ended: %s: %s", type(error).__name__, error)
        finally:
            self._over = True  # before any caller hears of it
            self._fail_calls()
            hand_on(stream)
            atexit.unregister(self.stop)  # which holds on to all that the work was on

    def _turn(self) -> None:
        """All calls that wait, then one step of work; sleeps where there is neither."""
        while not (self.stopping or self._calls.empty()):
            self._run(self._calls.get())
        self.beat()
        worked = self._work()
        self._busy_since = None
        if worked or self.stopping:
            return
        self._run(self._next())

    def _next(self) -> Call | None:
        """The next call, whenever it comes."""
        idle_at = time.monotonic() + self._idle_after
        rested = False
        while True:
            left = WATCH_S if rested else idle_at - time.monotonic()
            try:
                return self._calls.get(timeout=max(0.0, min(left, WATCH_S)))
            except queue.Empty:
                pass
            if not rested and time.monotonic() >= idle_at:
                rested = True
                self._idle()
            self._watch()

    def _run(self, item: Call | None) -> None:
        if item is None:
            return
        function, self._current = item
        self.beat()
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
