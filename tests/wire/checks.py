"""Judges of what goes out on the Responses route: the SDK's types, and the order of events.

Both work on what a client sees, so that they serve tests of machines and captured streams alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

Event = tuple[str, dict[str, Any]]
TERMINALS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def sdk_event(payload: Any) -> Any:
    """The payload as the SDK's type of it; pydantic's error if it is none."""
    return _adapter(ResponseStreamEvent).validate_python(payload)


def sdk_response(body: Any) -> Any:
    """The body as the SDK's response; pydantic's error if it is none."""
    return _adapter(Response).validate_python(body)


def parse_sse(raw: bytes | str) -> list[Event]:
    """The events of a captured stream; each has both lines."""
    text = raw.decode() if isinstance(raw, bytes) else raw
    events = []
    for block in filter(None, text.split("\n\n")):
        name, data = block.split("\n")
        assert name.startswith("event: "), block
        assert data.startswith("data: "), block
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def check_events(events: Sequence[Event]) -> dict[str, Any]:
    """The SDK's types and the order; returns the final response."""
    for _, payload in events:
        sdk_event(payload)
    return check_order(events)


def check_order(events: Sequence[Event]) -> dict[str, Any]:
    """W29 to W33, W56 and W57 on a whole stream; returns the final response."""
    numbers = [payload["sequence_number"] for _, payload in events]
    assert numbers == list(range(len(events))), "sequence_number has a gap"
    assert all(name == payload["type"] for name, payload in events)
    names = [name for name, _ in events]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] in TERMINALS, "the last event is a terminal"
    assert sum(name in TERMINALS for name in names) == 1, "there is one terminal"
    assert names.count("response.created") == 1
    state = _Items()
    for name, payload in events[2:-1]:
        state.take(name, payload)
    assert state.open is None, "an item was left open"
    return _final(events, state.done)


def _final(events: Sequence[Event], done: list[dict[str, Any]]) -> dict[str, Any]:
    lifecycle = [payload["response"] for _, payload in events if "response" in payload]
    assert len({response["id"] for response in lifecycle}) == 1, "the response's id changed"
    assert [r["status"] for r in lifecycle[:-1]] == ["in_progress"] * (len(lifecycle) - 1)
    name, last = events[-1]
    response: dict[str, Any] = last["response"]
    assert response["status"] == TERMINALS[name]
    assert response["output"] == done, "the final output is what was streamed"
    errors = [number for number, (event, _) in enumerate(events) if event == "error"]
    assert errors == ([len(events) - 2] if name == "response.failed" else [])
    _check_outcome(response)
    if errors:
        _check_error(events[-2][1])
    return response


def _check_outcome(response: dict[str, Any]) -> None:
    assert (response["error"] is not None) == (response["status"] == "failed")
    assert (response["incomplete_details"] is not None) == (response["status"] == "incomplete")
    if response["status"] == "completed":
        assert all(item["status"] == "completed" for item in response["output"])


def _check_error(payload: dict[str, Any]) -> None:
    assert {"code", "message", "param"} <= payload.keys()
    assert payload["error"]["message"] == payload["message"]


class _Items:
    """Follows the items of a stream."""

    def __init__(self) -> None:
        self.open: dict[str, Any] | None = None
        self.done: list[dict[str, Any]] = []
        self._steps: list[str] = []
        self._deltas: list[str] = []

    def take(self, name: str, payload: dict[str, Any]) -> None:
        if name in ("response.in_progress", "error"):
            assert name != "error" or self.open is None, "an error comes when all is closed"
        elif name == "response.output_item.added":
            self._added(payload)
        elif name == "response.output_item.done":
            self._done(payload)
        else:
            self._within(name, payload)

    def _added(self, payload: dict[str, Any]) -> None:
        assert self.open is None, "one item is open at a time"
        assert payload["output_index"] == len(self.done), "indexes have no gap"
        item = payload["item"]
        assert item["status"] == "in_progress"
        assert all(item.get(key) in (None, "", []) for key in _GROWING), "it begins empty"
        assert item["id"] not in {other["id"] for other in self.done}
        self.open, self._steps, self._deltas = item, [], []

    def _within(self, name: str, payload: dict[str, Any]) -> None:
        assert self.open is not None, f"{name} belongs to no item"
        assert payload["item_id"] == self.open["id"]
        assert payload["output_index"] == len(self.done)
        if name.endswith(".delta"):
            assert payload["delta"], "a delta says something"
            self._deltas.append(payload["delta"])
            if self._steps[-1:] == [name]:
                return
        elif name.endswith(".added"):
            assert payload["part"]["text"] == ""
        else:
            told = next(_text(payload[key]) for key in _TOLD if key in payload)
            assert told == "".join(self._deltas), f"{name} is not what its deltas were"
        self._steps.append(name)

    def _done(self, payload: dict[str, Any]) -> None:
        item, began = payload["item"], self.open
        assert began is not None, "an item is closed once"
        assert payload["output_index"] == len(self.done)
        assert all(item[key] == began[key] for key in _SAME if key in began)
        assert self._steps in _orders(item), f"{self._steps} is no order of {item['type']}"
        assert _content(item) == "".join(self._deltas)
        assert item["status"] in ("completed", "incomplete")
        self.open = None
        self.done.append(item)


_SAME = ("id", "type", "call_id", "name", "role")
_GROWING = ("arguments", "input", "content", "summary")
_TOLD = ("text", "arguments", "input", "part")


def _text(told: Any) -> str:
    return told if isinstance(told, str) else str(told["text"])


def _content(item: dict[str, Any]) -> str:
    grown: str | Iterable[Any] = next(item[key] for key in _GROWING if key in item)
    return grown if isinstance(grown, str) else "".join(part["text"] for part in grown)


def _orders(item: dict[str, Any]) -> list[list[str]]:
    """The events that an item of this type may have between added and done."""
    text, thought = "output_text", "reasoning_summary_text"
    call, custom = "function_call_arguments", "custom_tool_call_input"
    kinds = {
        "message": ["content_part.added", f"{text}.delta", f"{text}.done", "content_part.done"],
        "reasoning": [
            "reasoning_summary_part.added",
            f"{thought}.delta",
            f"{thought}.done",
            "reasoning_summary_part.done",
        ],
        "function_call": [f"{call}.delta", f"{call}.done"],
        "custom_tool_call": [f"{custom}.delta", f"{custom}.done"],
    }
    order = [f"response.{kind}" for kind in kinds[item["type"]]]
    # a call may be cut, or have an empty input, before anything was said of it
    bare = [step for step in order if not step.endswith(".delta")]
    is_call = item["type"].endswith("_call")
    return [order, bare] if is_call else [order]
