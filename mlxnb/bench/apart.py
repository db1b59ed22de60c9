"""Something that is measured, in a process of its own.

Switches such as ``MLXNB_PAGED`` hold for a whole process, and so do the threads and the memory of
a library: each that is measured gets its own, and waits idly while another runs.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from mlxnb.errors import MlxnbError

P = ParamSpec("P")
T = TypeVar("T")


class BenchFailed(MlxnbError, RuntimeError):
    """What was measured failed; the message says how."""


class Bench(Protocol):
    """Runs functions on something that is measured, wherever it is."""

    def __call__(
        self, function: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """``function(what is measured, *args)``."""
        ...


class Apart:
    """A `Bench` whose object lives in a process of its own.

    Functions, arguments and answers are pickled.

    Parameters
    ----------
    make
        Builds the object, there.
    *arguments
        For ``make``.
    environment
        Variables that the process has beside this one's.

    Raises
    ------
    BenchFailed
        The object could not be built; later, a call failed.
    """

    def __init__(
        self, make: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] = {}
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, dict(environment)), daemon=True
        )
        self._process.start()
        theirs.close()
        self._ask((make, arguments, {}))

    def __call__(
        self, function: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function on the object there and return what it returns."""
        answer: T = self._ask((function, args, kwargs))
        return answer

    def _ask(self, question: Any) -> Any:
        self._pipe.send(question)
        try:
            good, answer = self._pipe.recv()
        except EOFError:
            self._process.join()
            raise BenchFailed(
                f"the process that was measured ended (status {self._process.exitcode})"
            ) from None
        if not good:
            raise BenchFailed(answer)
        return answer

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(10)
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, environment: Mapping[str, str]) -> None:
    """The process: the first call makes the object, and the others get it, until the pipe ends."""
    os.environ.update(environment)
    before: tuple[Any, ...] = ()
    while True:
        try:
            function, args, kwargs = pipe.recv()
        except EOFError:
            return
        try:
            answer = function(*before, *args, **kwargs)
            if not before:
                before, answer = (answer,), None
            pipe.send((True, answer))
        except Exception as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))
