"""A user's mistake is one line on the cell, and no traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from IPython.core.error import UsageError

from mlxnb.errors import MlxnbError, NothingLoaded, RequestFailed
from mlxnb.notebook.options import Command

F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def one_line() -> Iterator[None]:
    """Turn users' mistakes into one-line UsageErrors; the engine's own faults pass."""
    try:
        yield
    except RequestFailed as error:
        if not isinstance(error.__cause__, MlxnbError):
            raise
        raise UsageError(_flat(error)) from None
    except NothingLoaded as error:
        what = _flat(error).partition(";")[0]
        raise UsageError(f"{what}; load it first, as in: %mlx_load demo") from None
    except MlxnbError as error:
        raise UsageError(_flat(error)) from None


def _flat(error: Exception) -> str:
    return " ".join(str(error).split("\n"))


def documented(command: Command) -> Callable[[F], F]:
    """Give a magic its command's help, and errors of one line."""

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def run(*values: Any, **named: Any) -> Any:
            with one_line():
                return function(*values, **named)

        run.__doc__ = command.help
        return run  # type: ignore[return-value]

    return wrap
