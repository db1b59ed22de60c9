"""How far a model that is being read has come: a bar, or whatever else shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    from tqdm.auto import tqdm

    with tqdm(
        desc=f"loading {name}", unit="B", unit_scale=True, unit_divisor=1024, leave=False
    ) as bar:

        def update(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update
