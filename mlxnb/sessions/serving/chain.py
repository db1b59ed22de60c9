"""A response and all that it continues, as one conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxnb.sessions.messages import Message
from mlxnb.sessions.serving.track import Track


@dataclass(frozen=True, slots=True)
class Chain:
    """What a response can be continued from.

    Attributes
    ----------
    messages
        In the template's form, oldest first, the system text left out; the last is its answer.
    system
        The system text that it was answered under.
    outputs
        Its own output items, as they were sent.
    model, key
        The model's name, and what names its content.
    salt
        Whose KV it shares.
    track
        Its tokens; None: they are not known.
    warm
        It is a live session, and was not read from the store.
    """

    messages: tuple[Message, ...]
    system: str | None
    outputs: tuple[Mapping[str, Any], ...]
    model: str
    key: str
    salt: str
    track: Track | None
    warm: bool = False

    @property
    def pending(self) -> dict[str, str]:
        """Ids and names of the calls whose results must come next."""
        calls = self.messages[-1].get("tool_calls", ()) if self.messages else ()
        return {call["id"]: call["function"]["name"] for call in calls}
