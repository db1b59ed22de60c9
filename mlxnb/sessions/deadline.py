"""A limit on how long Python code of somebody else's may run.

A chat template is code of a model's folder: sandboxed by Jinja, and still able to loop for days.
It runs as Python's own bytecode, so an exception can be raised in it from another thread.
https://docs.python.org/3/c-api/threads.html#c.PyThreadState_SetAsyncExc
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Overdue(BaseException):
    """No ``Exception``: what the code calls is not to catch it by accident."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Run the body on this thread; it raises ``TimeoutError`` when it has run so long.

    What waits in a library's compiled code is interrupted when it comes back from there.
    """
    thread, lock, ended = threading.get_ident(), threading.Lock(), threading.Event()

    def interrupt() -> None:
        with lock:
            if not ended.is_set():
                kind = ctypes.py_object(_Overdue)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind)

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    try:
        timer.start()
        try:
            yield
        finally:
            with lock:
                ended.set()
            timer.cancel()
    except _Overdue:
        raise TimeoutError(f"it ran longer than {seconds:g} s") from None
