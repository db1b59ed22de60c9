"""How far something is that takes a while."""

from __future__ import annotations

import sys
from typing import Any


def bar(description: str, total: int | None = None, unit: str = "B", show: bool = True) -> Any:
    """A progress bar of tqdm's, which is gone when it is closed.

    It is text in a notebook too: tqdm's own is a widget there, and a page that is loaded again
    would say that its model is not found.

    Parameters
    ----------
    unit
        Of what is counted; bytes are shown in multiples of 1,024.
    """
    from tqdm import tqdm

    options: dict[str, Any] = {"unit_scale": True, "unit_divisor": 1024} if unit == "B" else {}
    if in_kernel():  # what goes to stderr is shown as an error there
        options |= {"file": sys.stdout, "ncols": 80}
    return tqdm(desc=description, total=total, unit=unit, leave=False, disable=not show, **options)


def in_kernel() -> bool:
    """Whether a notebook shows what is printed."""
    return type(sys.stderr).__module__.startswith("ipykernel.")
