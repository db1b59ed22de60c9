"""The newest Anthropic SDK, and W34 to W36, as judges of what is sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from anthropic._streaming import SSEDecoder
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import TypeAdapter

Event = tuple[str, dict[str, Any]]

_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
_BETA_EVENT: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)
_MESSAGE: TypeAdapter[Any] = TypeAdapter(Message)
_BETA_MESSAGE: TypeAdapter[Any] = TypeAdapter(BetaMessage)
_COUNT: TypeAdapter[Any] = TypeAdapter(MessageTokensCount)
_DELTAS = {
    "text": {"text_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
}


def decoded(stream: bytes) -> list[Event]:
    """The events of a captured stream; each names itself twice (W52)."""
    events = []
    for sse in SSEDecoder().iter_bytes(iter([stream])):
        payload = json.loads(sse.data)
        assert sse.event == payload["type"], "an event has one name"
        events.append((sse.event, payload))
    return events


def check_message(body: Any) -> None:
    """A plain answer is what the SDK types, and its counts and reason are there."""
    _MESSAGE.validate_python(body)
    _BETA_MESSAGE.validate_python(body)
    assert body["id"].startswith("msg_")
    assert body["stop_reason"] is not None
    assert (body["stop_sequence"] is not None) == (body["stop_reason"] == "stop_sequence")
    _check_content(body["content"], body["stop_reason"])
    _check_usage(body["usage"])


def check_count(body: Any) -> None:
    """The answer of ``count_tokens``."""
    _COUNT.validate_python(body)


def check_error(body: Any) -> None:
    """An error in Anthropic's shape (W3, W58)."""
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert isinstance(body["error"]["type"], str)
    assert isinstance(body["error"]["message"], str)
    assert body["error"]["message"]


def message_of(events: Iterable[Event]) -> dict[str, Any]:
    """What the SDK's own stream helper makes of the events."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for name, payload in events:
        if name not in ("ping", "error"):
            event = _EVENT.validate_python(payload)
            snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    message: dict[str, Any] = snapshot.to_dict(mode="json")
    return message


def check_stream(events: Sequence[Event], *, ended: bool = True) -> None:
    """Every event is what the SDK types, and they come in the order of W34 to W36 and W41.

    ``ended``: the stream was not cut off by its client, so that there is one terminal, the last.
    """
    checker = _Checker()
    for name, payload in events:
        checker.take(name, payload)
    if ended:
        assert checker.terminal, "a stream ends with message_stop or an error"


class _Checker:
    def __init__(self) -> None:
        self.terminal = ""
        self._started = False
        self._closing = False
        self._blocks: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._signed = False
        self._said = ""
        self._input = 0

    def take(self, name: str, payload: dict[str, Any]) -> None:
        assert payload["type"] == name, "an event has one name"
        assert not self.terminal, f"{name} after the terminal {self.terminal}"
        if name == "ping":
            assert payload == {"type": "ping"}
            return
        if name == "error":
            assert self._open is None, "an error closes the open block first"
            check_error(payload)
            self.terminal = name
            return
        _EVENT.validate_python(payload)
        _BETA_EVENT.validate_python(payload)
        if name != "message_start":
            assert self._started, f"{name} before message_start"
        if name not in ("message_delta", "message_stop"):
            assert not self._closing, f"{name} after message_delta"
        getattr(self, f"_{name}")(payload)

    def _message_start(self, payload: dict[str, Any]) -> None:
        assert not self._started, "a message starts once"
        self._started = True
        message = payload["message"]
        assert message["id"].startswith("msg_")
        assert message["content"] == []
        assert message["stop_reason"] is None
        assert message["stop_sequence"] is None
        self._input = _check_usage(message["usage"])

    def _content_block_start(self, payload: dict[str, Any]) -> None:
        assert self._open is None, "one block is open at most"
        assert payload["index"] == len(self._blocks), "indexes run without a gap"
        self._open, self._said, self._signed = dict(payload["content_block"]), "", False
        kind = self._open["type"]
        empty = {"text": "text", "thinking": "thinking", "tool_use": "input"}[kind]
        assert not self._open[empty], "a block opens empty"

    def _content_block_delta(self, payload: dict[str, Any]) -> None:
        assert self._open is not None, "a delta belongs to an open block"
        assert payload["index"] == len(self._blocks)
        delta = payload["delta"]
        assert delta["type"] in _DELTAS[self._open["type"]], "a delta is of its block's kind"
        assert not self._signed, "a signature is a block's last delta"
        self._signed = delta["type"] == "signature_delta"
        if self._signed:
            assert delta["signature"]
            return
        said = next(value for key, value in delta.items() if key != "type")
        assert said, "a delta says something"
        self._said += said

    def _content_block_stop(self, payload: dict[str, Any]) -> None:
        assert self._open is not None, "an open block is closed"
        assert payload["index"] == len(self._blocks)
        kind = self._open["type"]
        assert self._signed == (kind == "thinking"), "thinking ends with a signature"
        self._open["text" if kind == "text" else "said"] = self._said
        self._blocks.append(self._open)
        self._open = None

    def _message_delta(self, payload: dict[str, Any]) -> None:
        assert self._open is None, "all blocks are closed"
        assert not self._closing, "there is one message_delta"
        self._closing = True
        delta = payload["delta"]
        reason = delta["stop_reason"]
        assert reason is not None
        assert (delta["stop_sequence"] is not None) == (reason == "stop_sequence")
        assert _check_usage(payload["usage"]) == self._input, "the counts are repeated (W27)"
        _check_content(self._blocks, reason)

    def _message_stop(self, payload: dict[str, Any]) -> None:
        assert self._closing, "message_delta comes first"
        self.terminal = "message_stop"


def _check_content(blocks: Sequence[dict[str, Any]], reason: str) -> None:
    kinds = [block["type"] for block in blocks]
    if reason == "stop_sequence":
        assert "text" in kinds, "a matched turn has a text block (W36)"
        assert "tool_use" not in kinds, "a turn has a call or a match, never both (W36)"
    else:
        blank = [b for b in blocks if b["type"] == "text" and not b["text"].strip()]
        assert not blank, "blank text alone makes no block (W35)"
    if reason == "tool_use":
        assert "tool_use" in kinds
    if reason == "end_turn":
        assert "tool_use" not in kinds
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids), "calls have ids of their own"
    assert all(call.startswith("toolu_") for call in ids)
    if reason == "tool_use":
        for block in blocks:
            if "said" in block and block["type"] == "tool_use":
                assert isinstance(json.loads(block["said"]), dict), "arguments are an object"


def _check_usage(usage: dict[str, Any]) -> int:
    """The whole prompt, as the three counts add up to it."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    counts = [usage[name] for name in names]
    assert all(type(count) is int and count >= 0 for count in counts)
    return sum(counts)
