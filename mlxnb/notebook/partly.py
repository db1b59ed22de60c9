"""A cell that ends early keeps what it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mlxnb.errors import Interrupted, Unfinished
from mlxnb.notebook.interrupt import interrupted

Store = Callable[[str | None, Any], None]
"""Puts a value into a variable, where there is a name for it."""


@contextmanager
def partly(keep: Callable[[Any], None], where: str) -> Iterator[None]:
    """Let ``keep`` have the partial result of what is interrupted, or cannot go on.

    Parameters
    ----------
    where
        What an interrupt says of the place that it is kept in.

    Raises
    ------
    KeyboardInterrupt
        There was an interrupt.
    """
    try:
        yield
    except Interrupted as error:
        keep(error.partial)
        raise interrupted(f"{str(error).partition(';')[0]}; {where}") from None
    except Unfinished as error:
        keep(error.partial)
        raise


def place(name: str | None) -> str:
    """Where ``keep`` puts a result, in words."""
    return "they are shown" if name is None else f"they are in {name}"


def keep(name: str | None, result: Any, store: Store) -> None:
    """Store a result; without a name it is shown."""
    if name is not None:
        store(name, result)
        return
    from IPython.display import display

    display(result)  # type: ignore[no-untyped-call]
