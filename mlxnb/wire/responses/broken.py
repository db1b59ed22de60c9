"""The end of a stream whose host is lost, made from what of it has gone out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlxnb.records.turn import ToolCall
from mlxnb.wire import Event
from mlxnb.wire.errors import WireError
from mlxnb.wire.responses.output import (
    CallOutput,
    CustomCallOutput,
    MessageOutput,
    OpenItem,
    Payload,
    ReasoningOutput,
)
from mlxnb.wire.responses.response import error_event

_ADDED, _DONE = "response.output_item.added", "response.output_item.done"
_OUTPUTS: dict[str, type[OpenItem]] = {"message": MessageOutput, "reasoning": ReasoningOutput}
_CALLS: dict[str, type[CallOutput]] = {
    "function_call": CallOutput,
    "custom_tool_call": CustomCallOutput,
}


def broken_off(told: Sequence[Payload], number: int, error: WireError) -> list[Event]:
    """What is open ends as incomplete, then the error, told twice (W41, W57).

    Parameters
    ----------
    told
        The first event, those that closed an item, and all since the last one of these.
    number
        The next ``sequence_number``.
    """
    response: dict[str, Any] = next((one["response"] for one in told if "response" in one), {})
    output = [one["item"] for one in told if one["type"] == _DONE]
    last = [*_closing(response, told)]
    output += [one["item"] for one in last if one["type"] == _DONE]
    ending: list[Payload] = [*last, error_event(error)]
    if response:
        failure = {"code": "server_error", "message": error.message}
        failed: Payload = {"status": "failed", "output": output, "error": failure}
        failed["incomplete_details"] = None
        ending.append({"type": "response.failed", "response": response | failed})
    return [
        (payload["type"], {**payload, "sequence_number": number + place})
        for place, payload in enumerate(ending)
    ]


def _closing(response: Payload, told: Sequence[Payload]) -> list[Payload]:
    """The events that close the open item, without those that have gone out."""
    ends = (place for place in range(len(told), 0, -1) if told[place - 1]["type"] == _DONE)
    since = told[next(ends, 0) :]
    added = next((one for one in since if one["type"] == _ADDED), None)
    item = None if added is None else _reopened(response["id"], added)
    if item is None:
        return []
    deltas = (one["delta"] for one in since if one["type"].endswith(".delta"))
    item.extended("".join(deltas))
    seen = {one["type"] for one in since}
    return [payload for payload in item.closed("incomplete") if payload["type"] not in seen]


def _reopened(response: str, added: Payload) -> OpenItem | None:
    """The item that an event has opened; None: of a kind that we do not send."""
    item, index = added["item"], added["output_index"]
    if item["type"] in _CALLS:
        call = ToolCall(item["call_id"], item["name"], {})
        return _CALLS[item["type"]](response, index, call)
    kind = _OUTPUTS.get(item["type"])
    return None if kind is None else kind(response, index)
