"""Request models: pydantic's errors worded so that they name the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from mlxnb.wire import body as bodies
from mlxnb.wire.errors import WireError

M = TypeVar("M", bound=BaseModel)
_SHOULD = "Input should be "


class Wire(BaseModel):
    """Base of all request models: nothing is converted, and fields nobody knows are let pass."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def validated(model: type[M], body: Any) -> M:
    """``body`` as ``model``.

    Raises
    ------
    WireError
        400 that names the first field that is wrong, or missing.
    """
    checked = bodies.check(body)
    try:
        return model.model_validate(checked)
    except ValidationError as error:
        raise _worded(error.errors(include_url=False, include_input=False), checked) from None


def whole(low: int, high: int) -> BeforeValidator:
    """An integer in ``[low, high]``, or null where the field may be."""

    def check(value: Any) -> Any:
        if value is None or (type(value) is int and low <= value <= high):
            return value
        raise wrong(f"is an integer in [{low}, {high}]")

    return BeforeValidator(check)


def wrong(reason: str, kind: str = "invalid_value") -> PydanticCustomError:
    """For validators: ``reason`` follows the field's name in the message."""
    return PydanticCustomError(kind, "{reason}", {"reason": reason})


def _worded(errors: Sequence[ErrorDetails], body: Any) -> WireError:
    """The error that lies deepest: where a value may be of several kinds, its own kind's."""
    paths = [_path(error, body) for error in errors]
    depth = max(len(path) for path in paths)
    path = next(path for path in paths if len(path) == depth)
    here = [error for error, its in zip(errors, paths, strict=True) if its == path]
    here = [error for error in here if not error["type"].endswith("_type")] or here
    param = _joined(path)
    if here[0]["type"] == "missing":
        return WireError(400, f"{param} is missing", code="missing_required_parameter", param=param)
    code = "invalid_type" if here[0]["type"].endswith("_type") else "invalid_value"
    return WireError(400, f"{param} {_reason(here)}", code=code, param=param)


def _path(error: ErrorDetails, body: Any) -> tuple[int | str, ...]:
    """The steps that are in the body; others are names of pydantic's alternatives."""
    path: list[int | str] = []
    for step in error["loc"]:
        if _leads_on(body, step):
            body = body[step]
            path.append(step)
    return (*path, error["loc"][-1]) if error["type"] == "missing" else tuple(path)


def _leads_on(value: Any, step: int | str) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and step < len(value)


def _joined(path: Sequence[int | str]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).lstrip(".") or "the body"


def _reason(errors: Sequence[ErrorDetails]) -> str:
    """What is wrong, after the field's name."""
    if errors[0]["type"] == "union_tag_invalid":
        return f"has a type that is not one of {errors[0]['ctx']['expected_tags']}"
    if errors[0]["type"] == "union_tag_not_found":
        return "has no type"
    reasons = list(dict.fromkeys(error["msg"] for error in errors))
    wanted = [r.removeprefix(_SHOULD) for r in reasons if r.startswith(_SHOULD)]
    if wanted:
        return f"should be {' or '.join(wanted)}"
    reason = reasons[0]
    return reason if reason[:1].islower() else f"is wrong: {reason}"
