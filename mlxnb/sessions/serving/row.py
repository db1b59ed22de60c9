"""One stored response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxnb.sessions.messages import Message


@dataclass(frozen=True, slots=True)
class Row:
    """A response as it is stored.

    Attributes
    ----------
    id, previous
        Its id, and that of the response which it continues.
    owner
        Whose it is: nobody else sees it.
    salt
        Whose KV its tokens shared.
    model, key
        The model's name, and what names its content.
    system
        The system text that it was answered under.
    created, expires
        Seconds since 1970.
    response, input_items
        The response as it was sent, and the request's own new items, as JSON values.
    messages
        The request's new messages and its answer, in the template's form.
    tokens
        What it adds to the tokens of the one before; see `mlxnb.sessions.serving.tokens`.
    """

    id: str
    previous: str | None
    owner: str
    salt: str
    model: str
    key: str
    system: str | None
    created: float
    expires: float
    response: Mapping[str, Any]
    input_items: Sequence[Mapping[str, Any]]
    messages: Sequence[Message]
    tokens: bytes

    @property
    def outputs(self) -> tuple[Mapping[str, Any], ...]:
        """Its output items."""
        return tuple(self.response.get("output") or ())
