"""A request's body: bytes to JSON values that the rest can rely on."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from mlxnb.wire.errors import WireError, invalid

MAX_DEPTH = 100
"""Lists and objects inside each other; a request that people write has a dozen."""


def read(raw: bytes) -> dict[str, Any]:
    """The JSON object that ``raw`` is.

    Raises
    ------
    WireError
        400: no JSON, no object, or a value that has no meaning outside Python.
    """
    try:
        body = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise _bad(f"it is not valid JSON: {_first_line(error)}") from None
    return check(body)


def check(body: Any) -> dict[str, Any]:
    """``body`` if it is a JSON object whose text has a UTF-8 form and whose numbers are finite.

    Raises
    ------
    WireError
        400, as `read`.
    """
    if not isinstance(body, dict):
        raise _bad(f"it is {_kind(body)}")
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return body
    raise invalid(f"the body has more than {MAX_DEPTH} levels of lists and objects")


def _inside(value: Any) -> list[Any]:
    """What a value holds, keys included; a scalar is checked and holds nothing."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise _bad("a key of it is no string")
        return [*value.keys(), *value.values()]
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise invalid("a number of the body is out of range")
    elif not (value is None or isinstance(value, int | float)):
        raise _bad(f"it holds {_kind(value)}")
    return []


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise invalid("the body has half of a surrogate pair, which is no character") from None


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", type(None): "null", bool: "a boolean"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else "no JSON")


def _bad(reason: str) -> WireError:
    return invalid(f"the body is a JSON object, but {reason}", code="invalid_json")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
