"""What the control routes have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mlxnb.host.gate import refused
from mlxnb.host.route import Route
from mlxnb.host.sight import Sight
from mlxnb.sessions.local import LocalEngine
from mlxnb.wire import errors
from mlxnb.wire.body import read
from mlxnb.wire.errors import WireError, invalid

T = TypeVar("T")


FACTS = ("tokens", "limit", "needed", "available")
"""Attributes of errors that are told with them."""


def worded(error: WireError) -> dict[str, Any]:
    """An error in OpenAI's shape, with the class that it has in Python."""
    body = errors.openai_body(error)
    cause = error.__cause__
    if isinstance(cause, Exception):
        body["error"]["class"] = type(cause).__name__
        body["error"]["facts"] = {f: getattr(cause, f) for f in FACTS if hasattr(cause, f)}
    return body


class Control(Route):
    """A route for notebooks: a client's key does not open it (W1)."""

    def _worded(self, error: WireError) -> dict[str, Any]:
        return worded(error)

    def prepare(self) -> None:
        """Let none in but Jupyter's users."""
        super().prepare()
        if self.caller.kind != "jupyter":
            raise refused("an mlxnb key does not open the control routes")

    @property
    def engine(self) -> LocalEngine:
        """The engine of this host."""
        return self.context.service.engine

    @property
    def sight(self) -> Sight:
        """What the caller of this request may see."""
        return Sight(self.caller)

    def fields(self, **kinds: type | tuple[type, ...]) -> dict[str, Any]:
        """The fields of the body, of these types; one that may be missing has None among them.

        Raises
        ------
        WireError
            400: one is missing, unknown, or of another type.
        """
        body = read(self.request.body or b"{}")
        unknown = [name for name in body if name not in kinds]
        if unknown:
            raise invalid(f"there is no field {unknown[0]!r} here", unknown[0])
        for name, kind in kinds.items():
            if not isinstance(body.get(name), kind):
                raise invalid(f"{name} is missing or of the wrong type", name)
        return {name: body.get(name) for name in kinds}

    async def told(self, function: Callable[[], T]) -> None:
        """Answer with what a function that blocks returns."""
        self.answer(await self.context.blocking(function))

    async def done(self, function: Callable[[], None]) -> None:
        """Answer with an empty object when a function that blocks has returned."""
        await self.context.blocking(function)
        self.answer({})

    def flag(self, name: str) -> bool | None:
        """A yes or no of the query; None: neither."""
        value = self.get_query_argument(name, "")
        if value not in ("", "0", "1", "true", "false"):
            raise WireError(400, f"{name} is 1 or 0", param=name)
        return value in ("1", "true") if value else None
