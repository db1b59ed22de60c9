"""Results of tool calls, until all that one answer made are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlxnb.errors import UnknownToolCall
from mlxnb.sessions.messages import Message, result_message


class Results:
    """What has been given so far, by the ids of the calls."""

    def __init__(self, given: Mapping[str, Message] | None = None) -> None:
        self._given = dict(given or {})

    @property
    def given(self) -> dict[str, Message]:
        """The results, by the ids of the calls."""
        return dict(self._given)

    def copy(self) -> Results:
        """The same results, for a fork."""
        return Results(self._given)

    def add(self, pending: Mapping[str, str], call_id: str, content: Any, is_error: bool) -> None:
        """Take one in, or another one in its place.

        Parameters
        ----------
        pending
            Ids and names of the calls that are outstanding.

        Raises
        ------
        UnknownToolCall
            No such call is outstanding.
        InvalidOption
            The content has no JSON form.
        """
        if call_id not in pending:
            there = ", ".join(pending) or "none"
            raise UnknownToolCall(f"no call {call_id!r} is outstanding (outstanding: {there})")
        self._given[call_id] = result_message(call_id, pending[call_id], content, is_error)

    def messages(self, pending: Mapping[str, str]) -> list[Message] | None:
        """The results in the order of the calls; None while one is missing."""
        if not pending.keys() <= self._given.keys():
            return None
        return [self._given[call_id] for call_id in pending]
