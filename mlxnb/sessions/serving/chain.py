"""A response and all that it continues, as one conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxnb.errors import ChainTooLong, UnknownResponse
from mlxnb.sessions.messages import Message
from mlxnb.sessions.serving.row import Row
from mlxnb.sessions.serving.tokens import unpacked
from mlxnb.sessions.serving.track import Track

MAX_LINKS = 100
"""Responses that one conversation is made of."""
FIELD = "previous_response_id"


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
    links
        How many responses it is made of.
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
    links: int = 1
    warm: bool = False

    @property
    def pending(self) -> dict[str, str]:
        """Ids and names of the calls whose results must come next."""
        calls = self.messages[-1].get("tool_calls", ()) if self.messages else ()
        return {call["id"]: call["function"]["name"] for call in calls}

    def checked(self) -> Chain:
        """The chain, if it may be continued.

        Raises
        ------
        ChainTooLong
            It is made of too many responses.
        """
        if self.links > MAX_LINKS:
            raise ChainTooLong(
                f"this response continues more than {MAX_LINKS} others, which is the limit; send "
                "the conversation as input instead",
                param=FIELD,
            )
        return self


def of_rows(rows: Sequence[Row]) -> Chain:
    """The chain of stored responses, newest first.

    Raises
    ------
    UnknownResponse
        An earlier one is not there any more.
    ChainTooLong
        It continues itself.
    """
    newest, oldest = rows[0], rows[-1]
    if oldest.previous is not None and len(rows) <= MAX_LINKS:
        if oldest.previous in {row.id for row in rows}:
            raise ChainTooLong(f"the response {newest.id!r} continues itself", param=FIELD)
        raise UnknownResponse(
            f"the response {newest.id!r} continues {oldest.previous!r}, which is not stored any "
            "more; send the conversation as input instead",
            param=FIELD,
        )
    track = None
    for row in reversed(rows):
        track = unpacked(row.tokens, track)
    return Chain(
        messages=tuple(message for row in reversed(rows) for message in row.messages),
        system=newest.system,
        outputs=newest.outputs,
        model=newest.model,
        key=newest.key,
        salt=newest.salt,
        track=track,
        links=len(rows),
    ).checked()
