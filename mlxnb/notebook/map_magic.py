"""`%%mlx_map`: a column of answers in a cell."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mlxnb.notebook.commands import MAP
from mlxnb.notebook.partly import Store, keep, partly, place
from mlxnb.notebook.plain import plain

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine


def map_cell(
    engine: Engine,
    values: Mapping[str, Any],
    given: SimpleNamespace,
    template: str,
    store: Store,
    **options: Any,
) -> Any:
    """Answer the prompt for each row; what there is after an interrupt or an error is stored.

    Parameters
    ----------
    values
        The notebook's variables.
    options
        For `mlxnb.sessions.column.map_rows`.

    Returns
    -------
    The result, where it is to be shown.

    Raises
    ------
    KeyboardInterrupt
        There was an interrupt. The engine has stopped.
    """
    from mlxnb.sessions.column import map_rows

    def told(result: Any) -> None:
        keep(given.output, result, store)
        if given.output is not None:
            print(plain(f"{given.output}: {summary(result)}"))

    rows, schema = _rows(values, given.rows), _variable(values, given.schema, "--schema")
    options["resume"] = _earlier(values, given)
    resumed = "" if given.output is None else ", and --resume goes on"
    with partly(told, place(given.output) + resumed):
        result = map_rows(engine, rows, template, schema=schema, source="magic", **options)
    if given.output is None:
        return result
    told(result)
    return None


def _rows(values: Mapping[str, Any], name: str) -> Any:
    """The variable of that name, or the column of one."""
    if name in values:
        return values[name]
    first, _, column = name.partition(".")
    frame = values.get(first)
    if column in getattr(frame, "columns", ()):
        return values[first][column]
    what = f"no column {column!r}" if first in values and column else "no such variable"
    return MAP.fail(f"ROWS: {name!r}: there is {what}")


def _variable(values: Mapping[str, Any], name: str | None, option: str) -> Any:
    if name is not None and name not in values:
        MAP.fail(f"{option} {name}: there is no such variable")
    return None if name is None else values[name]


def _earlier(values: Mapping[str, Any], given: SimpleNamespace) -> Any:
    """What ``--resume`` goes on from; None: nothing, or nothing is there yet."""
    if given.resume and given.output is None:
        MAP.fail("--resume needs -o NAME, whose rows stay")
    return values.get(given.output) if given.resume else None


def summary(result: Any) -> str:
    """How many rows are answered, and the first error."""
    turns = result.attrs["turns"]
    asked, failed = turns["prompt_hash"].notna(), turns["error"].dropna()
    good = (
        turns["turn_id"].notna() & turns["error"].isna() & (turns["finish_reason"] != "cancelled")
    )
    said = f"{int(good.sum()):,} of {int(asked.sum()):,} rows are answered"
    if len(failed):
        first = " ".join(str(failed.iloc[0]).split())
        said += f"; {len(failed):,} failed, the first ({failed.index[0]}) with {first}"
    return said
