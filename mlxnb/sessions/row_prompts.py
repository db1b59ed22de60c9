"""A prompt for each row of a Series or DataFrame."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING, Any

from mlxnb.errors import InvalidOption
from mlxnb.sessions.options import check_text

if TYPE_CHECKING:
    import pandas as pd

    Rows = pd.Series[Any] | pd.DataFrame

Template = str | Callable[[Any], str | None]
"""A text with ``{}`` or ``{column}`` in it, or what makes a text of a row."""

_PLACE = re.compile(r"\{(\{[^{}]*\})\}|\{([^{}]*)\}")
_NAME = re.compile(r"\w[\w .-]*")
_MORE = re.compile(r"[.!:\[]")
"""What Python's own templates go on with after a name; here a name stands alone."""


def row_prompts(rows: Rows, prompt: Template) -> list[str | None]:
    """The prompt of each row; None where a value that it needs is missing.

    Parameters
    ----------
    prompt
        In a text, ``{}`` stands for a Series's value (or for the one column of a DataFrame) and
        ``{column}`` for a column's; ``{{column}}`` is ``{column}`` itself, and braces around
        anything else are left alone. What comes in is not searched again. A callable gets a
        Series's value, or a DataFrame's row.

    Raises
    ------
    InvalidOption
        ``rows`` is neither; a column is not there; no column is named; a prompt is no text, or
        its callable raises.
    """
    import pandas as pd

    if not isinstance(rows, pd.Series | pd.DataFrame):
        raise InvalidOption(f"rows is a Series or a DataFrame, not {type(rows).__name__}")
    if isinstance(prompt, str):
        texts = _filled(rows, prompt)
    elif callable(prompt):
        texts = _called(rows, prompt)
    else:
        raise InvalidOption(f"prompt is a text or a callable, not {type(prompt).__name__}")
    for label, text in zip(rows.index, texts, strict=True):
        if text is not None:
            check_text(f"the prompt of row {label!r}", text)
    return texts


# --- templates --------------------------------------------------------------------------------


def _filled(rows: Rows, template: str) -> list[str | None]:
    pieces = list(_pieces(template, _columns(rows)))
    columns = [piece if isinstance(piece, list) else None for piece in pieces]
    if not any(columns) and len(rows):
        raise InvalidOption("the prompt names no column: write {} or {column} where a value goes")
    texts: list[str | None] = []
    for at in range(len(rows)):
        parts = [piece[at] if isinstance(piece, list) else piece for piece in pieces]
        texts.append(None if None in parts else "".join(map(str, parts)))
    return texts


def _pieces(template: str, columns: dict[str, list[str | None]]) -> Iterator[str | list[Any]]:
    """What a template is made of: texts, and columns of texts."""
    begin = 0
    for found in _PLACE.finditer(template):
        escaped, name = found[1], found[2]
        inner = escaped[1:-1] if name is None else name
        if not _is_place(inner, columns):
            continue
        yield template[begin : found.start()]
        yield escaped if name is None else _column(columns, name)
        begin = found.end()
    yield template[begin:]


def _is_place(inner: str, columns: Container[str]) -> bool:
    """Whether braces with this in them stand for a value, or look as if they should."""
    more = _MORE.split(inner)[0] in columns
    return inner in columns or not inner or more or _NAME.fullmatch(inner) is not None


def _column(columns: dict[str, list[str | None]], name: str) -> list[str | None]:
    if name in columns:
        return columns[name]
    there = ", ".join(f"{{{known}}}" for known in columns) or "none"
    raise InvalidOption(f"no column for {{{name}}} in the prompt; there are: {there}")


def _columns(rows: Rows) -> dict[str, list[str | None]]:
    """The values as texts, by what stands for them in a template."""
    import pandas as pd

    if isinstance(rows, pd.Series):
        values = _texts(rows)
        named = {} if rows.name is None else {str(rows.name): values}
        return {"": values} | named
    found: dict[str, list[str | None]] = {}
    for at, label in enumerate(rows.columns):
        if str(label) in found:
            raise InvalidOption(f"two columns are called {str(label)!r}")
        found[str(label)] = _texts(rows.iloc[:, at])
    return {"": next(iter(found.values()))} | found if len(found) == 1 else found


def _texts(column: pd.Series[Any]) -> list[str | None]:
    return [None if is_missing(value) else str(value) for value in column.tolist()]


# --- callables --------------------------------------------------------------------------------


def _called(rows: Rows, prompt: Callable[[Any], str | None]) -> list[str | None]:
    import pandas as pd

    series = isinstance(rows, pd.Series)
    values = rows.tolist() if isinstance(rows, pd.Series) else [row for _, row in rows.iterrows()]
    missing = [series and is_missing(value) for value in values]
    made = [
        None if gone else _made(prompt, label, value)
        for label, value, gone in zip(rows.index, values, missing, strict=True)
    ]
    return [None if is_missing(text) else text for text in made]


def _made(prompt: Callable[[Any], str | None], label: Any, value: Any) -> str | None:
    try:
        return prompt(value)
    except Exception as error:
        told = f"the prompt of row {label!r}: {type(error).__name__}: {error}"
        raise InvalidOption(told) from error


def is_missing(value: Any) -> bool:
    """Whether it stands for no value: None, NA, NaN or NaT."""
    import pandas as pd

    return bool(pd.api.types.is_scalar(value) and pd.isna(value))
