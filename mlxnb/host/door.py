"""What a protocol must bring to be served: one seam for Responses, Messages and completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mlxnb.engine.events import Event
from mlxnb.host.route import Shape
from mlxnb.records.turn import Source, Turn
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.serving.answer import Answer
from mlxnb.sessions.serving.service import Service
from mlxnb.wire import Event as WireEvent


class Machine(Protocol):
    """One answer in a protocol's terms: engine events in, wire events out."""

    def opening(self) -> Sequence[WireEvent]:
        """What a stream begins with, before anything is computed."""

    def feed(self, event: Event) -> Sequence[WireEvent]:
        """What one engine event makes known."""

    def quiet(self) -> Sequence[WireEvent]:
        """What says that the stream is alive, and nothing else (W33)."""

    def finish(self, turn: Turn) -> Sequence[WireEvent]:
        """The end of an answer that went well, its terminal included."""

    def fail(self, error: Exception) -> Sequence[WireEvent]:
        """The end of one that did not (W41)."""

    def abort(self) -> None:
        """Nobody listens any more."""

    def body(self) -> dict[str, Any]:
        """The whole answer, after ``finish``."""


@runtime_checkable
class Filing(Protocol):
    """A machine whose answer can be looked up afterwards."""

    def to_file(self, answer: Answer) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The answer as it was sent, and the items that were new in the request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was understood.

    Attributes
    ----------
    stream
        Whether the answer is to be sent as events.
    machine
        What makes them of an answer; the id is the request's, for errors.
    """

    ask: Ask
    stream: bool
    machine: Callable[[Answer, str], Machine]


@dataclass(frozen=True, slots=True)
class Door:
    """A protocol.

    Attributes
    ----------
    name
        As the turns frame has it.
    path
        Of its route, under the base.
    shape
        How its errors are worded.
    understand
        What a body's JSON and its caller ask for. May wait for the store; raises `WireError`
        and errors of mlxnb for all that is wrong with the request.
    encode
        A wire event to bytes.
    """

    name: Source
    path: str
    shape: Shape
    understand: Callable[[Service, Any, str], Asked]
    encode: Callable[[str, dict[str, Any]], bytes]
