"""How far something is that takes a while."""

from __future__ import annotations

import io
import sys
from typing import Any


def bar(description: str, total: int | None = None, unit: str = "B", show: bool = True) -> Any:
    """A progress bar of tqdm's, which is gone when it is closed.

    In a notebook it is text that is replaced: tqdm's own is a widget there, and a page that is
    loaded again would say that its model is not found.

    Parameters
    ----------
    unit
        Of what is counted; bytes are shown in multiples of 1,024.
    """
    from tqdm import tqdm

    options: dict[str, Any] = {"desc": description, "total": total, "unit": unit, "leave": False}
    options["disable"] = not show
    if unit == "B":
        options |= {"unit_scale": True, "unit_divisor": 1024}
    return _notebooks(tqdm)(**options) if in_kernel() else tqdm(**options)


def in_kernel() -> bool:
    """Whether a notebook shows what is printed."""
    return type(sys.stderr).__module__.startswith("ipykernel.")


def _notebooks(tqdm: type[Any]) -> type[Any]:
    from IPython.display import DisplayHandle

    class Bar(tqdm):  # type: ignore[misc]
        """Shows itself in one output of the cell."""

        def __init__(self, **options: Any) -> None:
            self._handle: Any = None
            super().__init__(file=io.StringIO(), ncols=80, **options)

        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            bundle = {"text/plain": str(self) if msg is None else msg}
            if self._handle is not None:
                self._handle.update(bundle, raw=True)
            elif msg != "":
                self._handle = DisplayHandle()  # type: ignore[no-untyped-call]
                self._handle.display(bundle, raw=True)

    return Bar
