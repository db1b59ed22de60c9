"""One answer as Responses events; the plain body is made by the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mlxnb.engine.events import Event as EngineEvent
from mlxnb.engine.events import Piece
from mlxnb.records.turn import ToolCall, Turn
from mlxnb.text.blank import BlankHold
from mlxnb.wire import Event, errors
from mlxnb.wire.answer import Answer, Miss
from mlxnb.wire.responses.diagnostics import diagnostics
from mlxnb.wire.responses.output import (
    CallOutput,
    CustomCallOutput,
    MessageOutput,
    OpenItem,
    Payload,
    ReasoningOutput,
    Status,
)
from mlxnb.wire.responses.request import ResponsesRequest, compared
from mlxnb.wire.responses.response import error_event, response
from mlxnb.wire.responses.stored import input_items
from mlxnb.wire.responses.tools import CustomTool
from mlxnb.wire.usage import openai_usage, timings


class Machine:
    """Turns an engine's events into a response's, in order and each item closed once.

    `opening` comes first, then `feed` and `quiet` as often as need be, then one of `finish`,
    `fail` and `abort`; after that there are no more events.

    Parameters
    ----------
    request, answer
        What was asked, and the answer that was begun.
    miss
        What was missed of the response that the request names for comparison.
    timed
        Timings are told inside ``usage``, unless the request says no.
    now
        Unix time in seconds.
    """

    def __init__(
        self,
        request: ResponsesRequest,
        answer: Answer,
        *,
        miss: Miss | None = None,
        timed: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._request = request
        self._answer = answer
        self._now = now
        self._timed = timed and request.timings
        self._custom = {tool.name for tool in request.callables if isinstance(tool, CustomTool)}
        self._shows_reasoning = request.reasoning is not None and bool(request.reasoning.told)
        self._sequence = 0
        self._open: OpenItem | None = None
        self._blank = BlankHold()
        self._output: list[Payload] = []
        self._response = response(request, answer, status="in_progress", output=())
        self._over = False
        if compared(request) is not None:
            self._response["prompt_cache_diagnostics"] = diagnostics(miss)

    # --- the stream --------------------------------------------------------------------------

    def opening(self) -> list[Event]:
        """The first two events, before anything is computed."""
        return [self._lifecycle("created"), self._lifecycle("in_progress")]

    def feed(self, event: EngineEvent) -> list[Event]:
        """What one event of the engine makes known."""
        if self._over or not isinstance(event, Piece):
            return []
        return self._numbered(self._piece(event))

    def quiet(self) -> list[Event]:
        """Something to send where nothing has happened for a while."""
        return [] if self._over else [self._lifecycle("in_progress")]

    def finish(self, turn: Turn) -> list[Event]:
        """The answer has ended: what was held, and the terminal event."""
        if self._over:
            return []
        if not turn.ended_well:
            return self.fail(self._answer.error or _failure(turn))
        held = self._blank.flush() if turn.finish_reason == "stop_sequence" else ""
        cut = turn.finish_reason == "length"
        events = self._numbered(
            [*self._text(held, blank=True), *self._close("incomplete" if cut else "completed")]
        )
        self._settle("incomplete" if cut else "completed", turn)
        if cut:
            self._response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            self._response["completed_at"] = self._now()
        return [*events, self._terminal()]

    def fail(self, error: Exception) -> list[Event]:
        """The answer has failed: what is open ends as incomplete, and the error is told twice."""
        if self._over:
            return []
        told = errors.of(error)
        events = self._numbered([*self._close("incomplete"), error_event(told)])
        self._settle("failed", None)
        self._response["error"] = {"code": "server_error", "message": told.message}
        return [*events, self._terminal()]

    def abort(self) -> None:
        """Nobody listens any more."""
        self._over = True

    # --- the whole ---------------------------------------------------------------------------

    def body(self) -> dict[str, Any]:
        """The response as it stands: at the end, the plain answer."""
        return {**self._response, "output": list(self._output)}

    def to_file(self, answer: Answer) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The response as it was sent, and the items that this request brought."""
        return self.body(), input_items(self._request, answer.response_id)

    # --- items -------------------------------------------------------------------------------

    def _piece(self, piece: Piece) -> list[Payload]:
        if piece.kind == "text":
            return self._text(piece.text)
        if piece.kind == "reasoning":
            return self._reasoning(piece.text)
        if piece.kind == "tool_arguments":
            return self._arguments(piece.text)
        assert piece.call is not None, "a call's piece has the call"
        if piece.kind == "tool_start":
            return self._start(piece.call)
        return self._call(piece.call)

    def _text(self, text: str, *, blank: bool = False) -> list[Payload]:
        """Visible text; blank text waits until real text follows, unless ``blank``."""
        text = text if blank else self._blank.feed(text)
        if not text:
            return []
        opened = [] if isinstance(self._open, MessageOutput) else self._begin(MessageOutput)
        assert self._open is not None, "a message is open"
        return [*opened, *self._open.extended(text)]

    def _reasoning(self, text: str) -> list[Payload]:
        if not text or not self._shows_reasoning:
            return []
        opened = [] if isinstance(self._open, ReasoningOutput) else self._begin(ReasoningOutput)
        assert self._open is not None, "reasoning is open"
        return [*opened, *self._open.extended(text)]

    def _start(self, call: ToolCall) -> list[Payload]:
        self._blank.drop()
        kind = CustomCallOutput if call.name in self._custom else CallOutput
        return self._begin(lambda response, index: kind(response, index, call))

    def _arguments(self, text: str) -> list[Payload]:
        if not text or not isinstance(self._open, CallOutput):
            return []
        return self._open.argued(text)

    def _call(self, call: ToolCall) -> list[Payload]:
        """A call that is whole, announced before or not."""
        announced = isinstance(self._open, CallOutput) and self._open.call_id == call.id
        opened = [] if announced else self._start(call)
        item = self._open
        assert isinstance(item, CallOutput), "a call is open"
        return [*opened, *item.rest(call), *self._close("completed", whole=True)]

    def _begin(self, make: Callable[[str, int], OpenItem]) -> list[Payload]:
        """Close what is open, and open an item of another kind."""
        closed = self._close("completed")
        self._open = make(self._answer.response_id, len(self._output))
        return [*closed, *self._open.opened()]

    def _close(self, status: Status, *, whole: bool = False) -> list[Payload]:
        """Close what is open, if anything; a call that is not whole is incomplete."""
        item, self._open = self._open, None
        if item is None:
            return []
        if isinstance(item, CallOutput) and not whole:
            status = "incomplete"
        if isinstance(item, MessageOutput):
            self._blank.drop()
        self._output.append(item.item(status))
        return item.closed(status)

    # --- the response ------------------------------------------------------------------------

    def _settle(self, status: str, turn: Turn | None) -> None:
        self._response["status"] = status
        if turn is not None:
            usage = openai_usage(turn.usage)
            if self._timed:
                usage |= timings(self._answer.record, self._answer.tuning)
            self._response["usage"] = usage

    def _terminal(self) -> Event:
        self._over = True
        return self._lifecycle(self._response["status"])

    def _lifecycle(self, kind: str) -> Event:
        return self._number({"type": f"response.{kind}", "response": self.body()})

    def _numbered(self, payloads: list[Payload]) -> list[Event]:
        return [self._number(payload) for payload in payloads]

    def _number(self, payload: Payload) -> Event:
        number, self._sequence = self._sequence, self._sequence + 1
        return payload["type"], {**payload, "sequence_number": number}


def _failure(turn: Turn) -> Exception:
    """Why a turn is no success."""
    if turn.finish_reason == "cancelled":
        return errors.WireError(500, "the response was cancelled", code="cancelled")
    return errors.WireError(500, turn.error or "the model failed", code="server_error")
