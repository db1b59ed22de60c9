"""The newest OpenAI SDK, and the order of chunks, as judges of chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

Event = tuple[str, dict[str, Any]]

_CHUNK: TypeAdapter[Any] = TypeAdapter(ChatCompletionChunk)
_COMPLETION: TypeAdapter[Any] = TypeAdapter(ChatCompletion)


def decoded(stream: bytes) -> list[Event]:
    """The events of a captured stream: data lines alone, and nothing behind ``[DONE]``."""
    events: list[Event] = []
    for block in filter(None, stream.decode().split("\n\n")):
        assert "\n" not in block, "an event is one line"
        data = block.removeprefix("data: ")
        assert data != block, "the line is one of data"
        assert "done" not in [name for name, _ in events], "nothing follows [DONE]"
        payload = {} if data == "[DONE]" else json.loads(data)
        name = "done" if data == "[DONE]" else "error" if "error" in payload else "chunk"
        events.append((name, payload))
    return events


def check_completion(body: Any) -> None:
    """A plain answer is what the SDK types, and whole."""
    _COMPLETION.validate_python(body)
    (choice,) = body["choices"]
    assert choice["index"] == 0
    _check_ending(choice["finish_reason"], choice["message"].get("tool_calls") or [])
    _check_usage(body["usage"])


def completion_of(events: Iterable[Event]) -> dict[str, Any]:
    """What the SDK's own stream helper makes of the chunks."""
    state: Any = ChatCompletionStreamState()
    for name, payload in events:
        if name == "chunk":
            state.handle_chunk(_CHUNK.validate_python(payload))
    completion: dict[str, Any] = state.current_completion_snapshot.to_dict(mode="json")
    return completion


def check_stream(events: Sequence[Event], *, usage: bool = False) -> None:
    """Every chunk is what the SDK types, and they come in order, with one terminal.

    ``usage``: the request has asked for it.
    """
    checker = _Checker(usage)
    for name, payload in events:
        checker.take(name, payload)
    assert checker.terminal, "a stream ends with [DONE] or an error"


class _Checker:
    def __init__(self, usage: bool) -> None:
        self.terminal = ""
        self._wants_usage = usage
        self._head: Any = None
        self._reason: str | None = None
        self._usage = False
        self._calls: list[dict[str, Any]] = []

    def take(self, name: str, payload: dict[str, Any]) -> None:
        assert not self.terminal, f"{name} after the terminal {self.terminal}"
        if name == "chunk":
            self._chunk(payload)
            return
        self.terminal = name
        if name == "error":
            assert payload["error"]["message"]
            assert self._reason is None, "an error comes instead of an end"
        else:
            assert self._reason is not None, "a finish_reason comes before the end"
            assert self._usage == self._wants_usage
            _check_ending(self._reason, self._calls)

    def _chunk(self, payload: dict[str, Any]) -> None:
        _CHUNK.validate_python(payload)
        head = {name: payload[name] for name in ("id", "object", "created", "model")}
        assert self._head in (None, head), "all chunks have one head"
        assert ("usage" in payload) == self._wants_usage
        if not payload["choices"]:
            assert self._reason is not None, "usage is the last chunk"
            assert not self._usage, "there is one usage"
            self._usage = True
            _check_usage(payload["usage"])
            return
        assert payload.get("usage") is None
        assert self._reason is None, "no choice after its finish_reason"
        (choice,) = payload["choices"]
        if self._head is None:
            assert choice["delta"]["role"] == "assistant", "the first chunk names the role"
        self._head = head
        self._reason = choice["finish_reason"]
        self._delta(choice["delta"], first="role" in choice["delta"])

    def _delta(self, delta: dict[str, Any], *, first: bool) -> None:
        for name in ("content", "reasoning_content"):
            assert delta.get(name, "x") or first, "a delta says something"
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(self._calls), "indexes run without a gap"
                assert call["function"] == {"name": call["function"]["name"], "arguments": ""}
                self._calls.append({"id": call["id"], "function": dict(call["function"])})
            else:
                assert call["index"] == len(self._calls) - 1, "a delta is of the last call"
                assert call["function"]["arguments"], "a delta says something"
                self._calls[-1]["function"]["arguments"] += call["function"]["arguments"]


def _check_ending(reason: str, calls: Sequence[dict[str, Any]]) -> None:
    assert reason in ("stop", "length", "tool_calls")
    assert bool(calls) or reason != "tool_calls"
    assert not calls or reason != "stop"
    ids = [call["id"] for call in calls]
    assert len(set(ids)) == len(ids), "calls have ids of their own"
    if reason == "tool_calls":
        for call in calls:
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


def _check_usage(usage: dict[str, Any]) -> None:
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
    details = usage["completion_tokens_details"]
    assert 0 <= details["reasoning_tokens"] <= usage["completion_tokens"]
