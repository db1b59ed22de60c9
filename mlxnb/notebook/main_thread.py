"""Work that another thread asks for and the kernel's main thread does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import Any, Generic, TypeVar

from IPython.core.getipython import get_ipython

T = TypeVar("T")


class Errand(Generic[T]):
    """Something to be done on the main thread, when no cell runs there.

    Outside a kernel it is done on the thread that begins it.

    Parameters
    ----------
    work
        What is done.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._future: Future[T] = Future()
        self._over = threading.Event()
        self._future.add_done_callback(lambda _: self._over.set())
        self._lock = threading.Lock()
        self._inside = False

    def begin(self) -> None:
        """Let it be done."""
        kernel = getattr(get_ipython(), "kernel", None)
        loop = getattr(kernel, "io_loop", None)
        if loop is None:
            self._do()
        else:
            loop.add_callback(self._do)

    def ended(self, seconds: float) -> bool:
        """Whether it has ended in that many seconds."""
        return self._over.wait(seconds)

    def result(self) -> T:
        """What came of it: returns or raises what the work does.

        Raises
        ------
        KeyboardInterrupt
            It was interrupted, by the user or by ``give_up``.
        CancelledError
            It was given up before it had begun.
        """
        return self._future.result()

    @property
    def begun(self) -> bool:
        """Whether it is being done, or was."""
        return self._future.running() or (self._future.done() and not self._future.cancelled())

    def give_up(self) -> None:
        """Do not begin it; interrupt it if it has begun. Harmless when it has ended."""
        if self._future.cancel():
            return
        with self._lock:
            if self._inside:
                signal.pthread_kill(_main(), signal.SIGINT)

    # --- the main thread ----------------------------------------------------------------------

    def _do(self) -> None:
        if not self._future.set_running_or_notify_cancel():
            return
        is_main = threading.get_ident() == _main()  # no other thread can be interrupted
        old = signal.signal(signal.SIGINT, self._interrupted) if is_main else None
        try:
            try:
                self._inside = is_main
                value = self._work()
            finally:
                self._end()
        except BaseException as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(value)
        finally:
            if old is not None:
                signal.signal(signal.SIGINT, old)

    def _end(self) -> None:
        """From here on nothing is interrupted."""
        self._inside = False
        with self._lock:  # who saw that it was inside has sent the signal by now
            pass

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._inside:
            self._inside = False
            raise KeyboardInterrupt


def _main() -> int:
    ident: Any = threading.main_thread().ident
    return int(ident)
