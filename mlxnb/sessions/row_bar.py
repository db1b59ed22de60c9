"""How many rows are answered: a bar where somebody watches, or whatever else shows it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mlxnb.models.bar import bar, in_kernel

Progress = Callable[[int, int], None]
"""Takes rows done and rows in all."""


@contextmanager
def row_bar(total: int, show: bool | Progress) -> Iterator[Callable[[], None]]:
    """Called once a row that is done."""
    if callable(show):
        done = itertools.count(1)
        yield lambda: show(next(done), total)
        return
    if not show or not _watched():
        yield lambda: None
        return
    with bar("answering", total, unit="row") as shown:

        def tell() -> None:
            shown.update()

        yield tell


def _watched() -> bool:
    """Whether output goes to a terminal or a notebook, and not to a file or a pipe."""
    return sys.stderr.isatty() or in_kernel()
