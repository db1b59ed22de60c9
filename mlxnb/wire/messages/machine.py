"""One answer as Anthropic's clients read it: server-sent events, or the body they add up to."""

from __future__ import annotations

from typing import Any

from mlxnb.engine.events import Done, Piece, Prefill
from mlxnb.engine.events import Event as EngineEvent
from mlxnb.errors import RequestFailed
from mlxnb.records.turn import Turn, Usage
from mlxnb.wire import Event
from mlxnb.wire.answer import Answer, Miss
from mlxnb.wire.errors import anthropic_body, of
from mlxnb.wire.ids import renamed
from mlxnb.wire.messages.content import Content
from mlxnb.wire.messages.diagnostics import diagnostics
from mlxnb.wire.messages.request import MessagesRequest
from mlxnb.wire.usage import anthropic_usage, timings

_UNFINISHED = "the answer was ended before it was whole"


class Machine:
    """Turns the events of one answer into those of the protocol (W34–W36, W41).

    A message starts when the engine has admitted it, since only then its counts of cached tokens
    are final. Whatever comes after the end gives nothing: there is one terminal, ever.

    Parameters
    ----------
    request
        As it was validated.
    answer
        What the service has begun.
    miss
        What was missed of the message that the request names for comparison.
    request_id
        Repeated in errors.
    """

    def __init__(
        self,
        request: MessagesRequest,
        answer: Answer,
        *,
        miss: Miss | None = None,
        request_id: str | None = None,
    ) -> None:
        self._answer = answer
        self._request_id = request_id
        self._timed = request.timings
        self._cached = answer.cached_tokens
        self._content = Content(shows_thinking=request.shows_thinking)
        self._started = False
        self._ended = False
        self._message: dict[str, Any] = {
            "id": renamed(answer.response_id, "msg"),
            "type": "message",
            "role": "assistant",
            "model": answer.asked_model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        if request.diagnostics is not None:
            self._message["diagnostics"] = diagnostics(miss)

    # --- while it runs ------------------------------------------------------------------------

    def opening(self) -> list[Event]:
        """Nothing: the message starts with its admission; until then there are pings."""
        return []

    def feed(self, event: EngineEvent) -> list[Event]:
        """What one event of the engine is on the wire. The end is for `finish`, or `fail`."""
        if self._ended or isinstance(event, Done):
            return []
        if isinstance(event, Prefill):
            self._cached = self._cached if self._started else event.cached
            return self._start()
        return [*self._start(), *self._grow(event)]

    def quiet(self) -> list[Event]:
        """Nothing has happened for a while (W33)."""
        return [] if self._ended else [("ping", {"type": "ping"})]

    # --- the end ------------------------------------------------------------------------------

    def finish(self, turn: Turn) -> list[Event]:
        """The turn that has come of it, which may have failed or been cancelled."""
        if self._ended:
            return []
        if turn.finish_reason in (None, "cancelled", "error"):
            return self.fail(self._answer.error or RequestFailed(_UNFINISHED))
        events = self._start()
        if turn.stop_sequence is not None:
            events += self._content.held_text()
        events += self._content.close()
        self._ended = True
        ending = {"stop_reason": self._reason(turn), "stop_sequence": turn.stop_sequence}
        self._message |= {**ending, "usage": self._usage(turn)}
        delta = {"type": "message_delta", "delta": ending, "usage": self._message["usage"]}
        return [*events, ("message_delta", delta), ("message_stop", {"type": "message_stop"})]

    def fail(self, error: BaseException) -> list[Event]:
        """It failed: what is open is closed, and the error is the last event."""
        if self._ended:
            return []
        self._ended = True
        return [*self._content.close(), ("error", anthropic_body(of(error), self._request_id))]

    def abort(self) -> None:
        """The client is gone: nothing is sent any more."""
        self._ended = True

    def body(self) -> dict[str, Any]:
        """The message; before its end, the blocks that are closed."""
        return self._message | {"content": list(self._content.blocks)}

    # --- parts --------------------------------------------------------------------------------

    def _start(self) -> list[Event]:
        if self._started:
            return []
        self._started = True
        usage = Usage(prompt_tokens=self._answer.prompt_tokens, cached_tokens=self._cached)
        message = self._message | {"usage": anthropic_usage(usage)}
        return [("message_start", {"type": "message_start", "message": message})]

    def _grow(self, piece: Piece) -> list[Event]:
        if piece.kind == "text":
            return self._content.text(piece.text)
        if piece.kind == "reasoning":
            return self._content.reasoning(piece.text)
        if piece.kind == "tool_arguments":
            return self._content.arguments(piece.text)
        assert piece.call is not None, "a call comes with its piece"
        if piece.kind == "tool_start":
            return self._content.call_begins(piece.call)
        return self._content.call(piece.call)

    def _reason(self, turn: Turn) -> str:
        """The precedence of W36."""
        if turn.stop_sequence is not None:
            return "stop_sequence"
        if turn.finish_reason == "length":
            return "max_tokens"
        return "tool_use" if self._content.has_calls else "end_turn"

    def _usage(self, turn: Turn) -> dict[str, Any]:
        usage = anthropic_usage(turn.usage)
        return usage | timings(self._answer.record, self._answer.tuning) if self._timed else usage
