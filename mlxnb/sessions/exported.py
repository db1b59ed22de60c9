"""A session as a file: what was said, its options and its tokens, to go on elsewhere.

The file is JSON, and checked as a whole before anything of it is used.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from mlxnb.errors import InvalidOption
from mlxnb.link.places import write_private
from mlxnb.records.turn import Span
from mlxnb.sessions.history import History, Line, Mark
from mlxnb.sessions.messages import Message
from mlxnb.sessions.options import Options

Token = Annotated[int, Field(ge=0, lt=2**32)]
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Target(_Part):
    """What a call calls."""

    name: str
    arguments: dict[str, Any]


class Call(_Part):
    """One call that an answer made."""

    id: str
    type: Literal["function"]
    function: Target


class Said(_Part):
    """One message, in the chat template's form."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning_content: str | None = None
    tool_calls: tuple[Call, ...] = ()
    name: str | None = None
    tool_call_id: str | None = None

    @model_serializer(mode="wrap")
    def _plain(self, whole: SerializerFunctionWrapHandler) -> Message:
        """Without what it does not have, as `Message` is."""
        return {name: value for name, value in whole(self).items() if value not in (None, (), [])}


class Exported(_Part):
    """All of a session that can be written down.

    Attributes
    ----------
    id
        The same for all files of one session that is kept.
    key
        Names the content of the model that ``tokens`` are of; None: of none, and there are none.
    spans
        Whose the tokens are.
    lengths
        Where each turn ended in ``tokens``; 0 where that turn's tokens are not known any more.
    results
        Results of tool calls that are still to be said, by the calls' ids.
    """

    format: Literal["mlxnb-session"]
    version: Literal[1]
    id: str
    name: str = Field(min_length=1)
    saved_at: dt.datetime
    options: Options
    key: str | None = None
    messages: tuple[Said, ...]
    tokens: list[Token] = []
    spans: list[Span] = []
    lengths: list[Count] = []
    results: dict[str, Said] = {}

    @classmethod
    def of(
        cls,
        identity: str,
        name: str,
        options: Options,
        history: History,
        key: str | None,
        results: dict[str, Message],
    ) -> Exported:
        """A session's state. Tokens of turns that its line does not go on from are left out."""
        line = history.line
        return cls(
            format="mlxnb-session",
            version=1,
            id=identity,
            name=name,
            saved_at=dt.datetime.now(dt.UTC),
            options=options,
            key=key if line.tokens else None,
            messages=tuple(Said.model_validate(message) for message in history.messages),
            tokens=line.tokens,
            spans=line.spans,
            lengths=[mark.length if mark.line is line else 0 for mark in history.marks],
            results={i: Said.model_validate(message) for i, message in results.items()},
        )

    @property
    def history(self) -> History:
        """The history that it was made of."""
        line = Line(list(self.tokens), list(self.spans))
        ends = list(self._ends())
        marks = (
            Mark(end, line if length else Line(), length)
            for end, length in zip(ends, self.lengths, strict=True)
        )
        return History(tuple(map(_message, self.messages)), line, tuple(marks))

    @property
    def given(self) -> dict[str, Message]:
        """The results, as messages."""
        return {call_id: _message(said) for call_id, said in self.results.items()}

    def _ends(self) -> Iterator[int]:
        """How many messages there are after each turn."""
        return (at for at, said in enumerate(self.messages, 1) if said.role == "assistant")

    # --- what a file of somebody else's could have wrong ---------------------------------------

    @model_validator(mode="after")
    def _checked(self) -> Exported:
        for wrong, reason in self._faults():
            if wrong:
                raise ValueError(reason)
        return self

    def _faults(self) -> Iterator[tuple[bool, str]]:
        roles = [said.role for said in self.messages]
        system = [said.content for said in self.messages[:1] if said.role == "system"]
        own = [] if self.options.system is None else [self.options.system]
        yield system != own, "messages: the system text is not that of the options"
        yield "system" in roles[1:], "messages: a system text stands behind others"
        yield roles[len(system) :][-1:] not in ([], ["assistant"]), "messages: no answer at the end"
        yield not self._answered(), "messages: a tool's result without its call, or a call without"
        yield len(self.lengths) != roles.count("assistant"), "lengths: not one for each answer"
        known = [length for length in self.lengths if length]
        yield known != sorted(known), "lengths: they do not ascend"
        yield max(known, default=0) > len(self.tokens), "lengths: more than there are tokens"
        yield bool(self.tokens) != (self.key is not None), "key: tokens without it, or it without"
        ends = [0, *(place for span in self.spans for place in (span.start, span.end))]
        yield ends != sorted(ends) or ends[-1] > len(self.tokens), "spans: not places of the tokens"
        yield not all(0 <= s.message <= len(roles) for s in self.spans), "spans: no such message"
        yield not _all_tools(self.options.tools), "options.tools: not JSON objects with names"
        pending = {call.id for said in self.messages[-1:] for call in said.tool_calls}
        yield not self.results.keys() <= pending, "results: of calls that are not outstanding"

    def _answered(self) -> bool:
        """Whether results stand where calls were made, and there alone."""
        due: list[str] = []
        for said in self.messages:
            if said.role == "tool":
                if not due or said.tool_call_id != due.pop(0):
                    return False
            elif due:
                return False
            due = due or [call.id for call in said.tool_calls]
        return True


def _message(said: Said) -> Message:
    return said.model_dump(mode="json")


def _all_tools(tools: tuple[str, ...]) -> bool:
    try:
        found = [json.loads(tool) for tool in tools]
    except ValueError:
        return False
    return all(isinstance(tool, dict) for tool in found)


# --- files ------------------------------------------------------------------------------------


def write(path: Path, text: str) -> None:
    """Write a file for this user alone, at once.

    Raises
    ------
    InvalidOption
        It cannot be written; the message says why.
    """
    try:
        write_private(path, text)
    except OSError as error:
        raise InvalidOption(f"{path} cannot be written: {error.strerror or error}") from None


def read(path: Path) -> Exported:
    """The session that a file holds.

    Raises
    ------
    InvalidOption
        It cannot be read, or is not such a file; the message names the place.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror or error}") from None
    return parsed(content, str(path))


def parsed(content: bytes, where: str) -> Exported:
    """The session that some JSON holds; ``where`` begins the message of an error."""
    try:
        return Exported.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        told = f"{place}: {reason}" if place else reason
        raise InvalidOption(f"{where} is no exported session of mlxnb: {told}") from None
