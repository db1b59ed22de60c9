"""`%mlx_compare`: one prompt and several answers, side by side."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mlxnb.notebook.partly import Store, keep, partly, place

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.sessions.engine import Engine


def compare_line(
    engine: Engine,
    given: SimpleNamespace,
    text: str,
    system: str | None,
    store: Store,
    **sampling: Any,
) -> pd.DataFrame:
    """The comparison that a line asks for; what there is after an interrupt is kept.

    Parameters
    ----------
    sampling
        Of all sides.

    Raises
    ------
    KeyboardInterrupt
        There was an interrupt. The engine has stopped.
    """
    from mlxnb.sessions.comparison import compare

    sides = given.model or None, given.session or None, settings_of(given), system
    where = place(given.output)
    with partly(lambda partial: keep(given.output, partial, store), where):
        return compare(engine, text, *sides, source="magic", **sampling)


def settings_of(given: SimpleNamespace) -> list[dict[str, Any]]:
    """Every temperature with every seed; an option that is not given is left out."""
    axes = {"temperature": given.temp, "seed": given.seed}
    named = [[(name, value) for value in values] for name, values in axes.items() if values]
    return [dict(chosen) for chosen in itertools.product(*named)]
