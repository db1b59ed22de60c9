"""One answer as chunks of a completion, or as the completion they add up to."""

from __future__ import annotations

import json
from typing import Any

from mlxnb.engine.events import Done, Piece, Prefill
from mlxnb.engine.events import Event as EngineEvent
from mlxnb.errors import RequestFailed
from mlxnb.records.turn import ToolCall, Turn
from mlxnb.wire import Event, sse
from mlxnb.wire.answer import Answer
from mlxnb.wire.chat.request import ChatRequest
from mlxnb.wire.chat.usage import chat_usage
from mlxnb.wire.errors import of, openai_body
from mlxnb.wire.ids import renamed
from mlxnb.wire.usage import timings

_UNFINISHED = "the answer was ended before it was whole"
_REASONS = {"length": "length", "tool_calls": "tool_calls"}


def encode(name: str, payload: dict[str, Any]) -> bytes:
    """An event as bytes: in this protocol events have no names, and the end is no JSON."""
    return b"data: [DONE]\n\n" if name == "done" else sse.unnamed(payload)


class Machine:
    """Turns the events of one answer into chunks.

    Events are named ``chunk``, ``error`` and ``done``, for `encode` alone. There is one terminal:
    ``done``, or an ``error``.
    """

    def __init__(self, request: ChatRequest, answer: Answer) -> None:
        self._request = request
        self._answer = answer
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._reason: str | None = None
        self._usage: dict[str, Any] | None = None
        self._ended = False

    # --- while it runs ------------------------------------------------------------------------

    def opening(self) -> list[Event]:
        """Whose answer it is, before anything is computed."""
        return [self._delta({"role": "assistant", "content": ""})]

    def feed(self, event: EngineEvent) -> list[Event]:
        """What one event of the engine makes known. The end is for `finish`, or `fail`."""
        if self._ended or isinstance(event, Done | Prefill):
            return []
        return [self._delta(delta) for delta in self._grow(event)]

    def quiet(self) -> list[Event]:
        """Nothing has happened for a while: a chunk that says nothing."""
        return [] if self._ended else [self._delta({})]

    # --- the end ------------------------------------------------------------------------------

    def finish(self, turn: Turn) -> list[Event]:
        """The turn that has come of it, which may have failed or been cancelled."""
        if self._ended:
            return []
        if turn.finish_reason in (None, "cancelled", "error"):
            return self.fail(self._answer.error or RequestFailed(_UNFINISHED))
        self._ended = True
        ends_as_call = "tool_calls" if self._calls else "stop"
        self._reason = _REASONS.get(turn.finish_reason, ends_as_call)
        self._usage = chat_usage(turn.usage)
        if self._request.timings:
            self._usage |= timings(self._answer.record, self._answer.tuning)
        events = [self._delta({}, self._reason)]
        if self._request.includes_usage:
            events.append(self._chunk([], self._usage))
        return [*events, ("done", {})]

    def fail(self, error: BaseException) -> list[Event]:
        """It failed: the error is the last event."""
        if self._ended:
            return []
        self._ended = True
        return [("error", openai_body(of(error)))]

    def abort(self) -> None:
        """The client is gone: nothing is sent any more."""
        self._ended = True

    def body(self) -> dict[str, Any]:
        """The completion; before its end, as far as it has come."""
        choice = {
            "index": 0,
            "message": self._message(),
            "logprobs": None,
            "finish_reason": self._reason,
        }
        whole = {**self._head("chat.completion"), "choices": [choice]}
        return whole if self._usage is None else {**whole, "usage": self._usage}

    # --- parts --------------------------------------------------------------------------------

    def _grow(self, piece: Piece) -> list[dict[str, Any]]:
        """The deltas that a piece is."""
        if piece.kind == "text":
            self._text.append(piece.text)
            return [{"content": piece.text}] if piece.text else []
        if piece.kind == "reasoning":
            self._reasoning.append(piece.text)
            return [{"reasoning_content": piece.text}] if piece.text else []
        if piece.kind == "tool_arguments":
            return self._arguments(piece.text)
        assert piece.call is not None, "a call comes with its piece"
        if piece.kind == "tool_start":
            return self._call_begins(piece.call)
        return self._call(piece.call)

    def _call_begins(self, call: ToolCall) -> list[dict[str, Any]]:
        self._calls.append(_Call(call))
        return [self._call_delta(self._calls[-1].whole(arguments=""))]

    def _arguments(self, text: str) -> list[dict[str, Any]]:
        self._calls[-1].said.append(text)
        return [self._call_delta({"function": {"arguments": text}})] if text else []

    def _call(self, call: ToolCall) -> list[dict[str, Any]]:
        """A whole call, or the end of the one that has begun."""
        begun = bool(self._calls) and self._calls[-1].id == call.id
        deltas = [] if begun else self._call_begins(call)
        if not any(self._calls[-1].said):
            deltas += self._arguments(json.dumps(call.arguments, ensure_ascii=False))
        return deltas

    def _call_delta(self, call: dict[str, Any]) -> dict[str, Any]:
        return {"tool_calls": [{"index": len(self._calls) - 1, **call}]}

    def _message(self) -> dict[str, Any]:
        text = "".join(self._text)
        content = None if self._calls and not text else text
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [call.whole() for call in self._calls]
        return message

    def _delta(self, delta: dict[str, Any], reason: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._chunk([choice], None)

    def _chunk(self, choices: list[Any], usage: dict[str, Any] | None) -> Event:
        chunk = {**self._head("chat.completion.chunk"), "choices": choices}
        return "chunk", {**chunk, "usage": usage} if self._request.includes_usage else chunk

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": renamed(self._answer.response_id, "chatcmpl"),
            "object": kind,
            "created": self._answer.created,
            "model": self._answer.asked_model,
        }


class _Call:
    """A call as far as it was sent."""

    def __init__(self, call: ToolCall) -> None:
        self.id = call.id
        self.said: list[str] = []
        self._name = call.name

    def whole(self, arguments: str | None = None) -> dict[str, Any]:
        """The call with what was said of its arguments, or with these."""
        said = "".join(self.said) if arguments is None else arguments
        function = {"name": self._name, "arguments": said}
        return {"id": self.id, "type": "function", "function": function}
