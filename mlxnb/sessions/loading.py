"""How far a model that is being read has come: a bar, or whatever else shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mlxnb.models.bar import bar

Progress = Callable[[int, int], None]
"""Takes bytes read and bytes in all."""


@contextmanager
def loading_bar(name: str, show: bool | Progress) -> Iterator[Progress | None]:
    """A bar, the function that is to show it, or None where nothing is to be shown."""
    if callable(show):
        yield show
        return
    if not show:
        yield None
        return
    with bar(f"loading {name}") as shown:

        def update(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield update
