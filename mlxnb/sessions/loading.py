"""A progress bar for a model that is being read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def loading_bar(name: str, show: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A function that takes bytes read and bytes in all; None where nothing is to be shown."""
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
