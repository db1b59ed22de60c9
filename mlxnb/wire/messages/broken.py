"""The end of a stream whose host is lost, made from what of it has gone out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mlxnb.wire import Event
from mlxnb.wire.errors import WireError, anthropic_body
from mlxnb.wire.messages.signature import sign


def broken_off(
    told: Sequence[dict[str, Any]], error: WireError, request_id: str | None
) -> list[Event]:
    """What is open is closed, and the error is the last event (W41).

    Parameters
    ----------
    told
        The events since a block was last closed, or more.
    """
    return [*_closing(told), ("error", anthropic_body(error, request_id))]


def _closing(told: Sequence[dict[str, Any]]) -> Iterator[Event]:
    last = next(
        (
            place
            for place in range(len(told) - 1, -1, -1)
            if told[place]["type"] in ("content_block_start", "content_block_stop")
        ),
        None,
    )
    if last is None or told[last]["type"] == "content_block_stop":
        return
    start = told[last]
    deltas = [one["delta"] for one in told[last + 1 :] if one["type"] == "content_block_delta"]
    if start["content_block"]["type"] == "thinking":
        yield from _signature(start["index"], deltas)
    yield "content_block_stop", {"type": "content_block_stop", "index": start["index"]}


def _signature(index: int, deltas: Sequence[dict[str, Any]]) -> Iterator[Event]:
    """Thinking ends with a signature (W34)."""
    if any(delta["type"] == "signature_delta" for delta in deltas):
        return
    thought = "".join(delta.get("thinking", "") for delta in deltas)
    delta = {"type": "signature_delta", "signature": sign(thought, carry=False)}
    event = {"type": "content_block_delta", "index": index, "delta": delta}
    yield "content_block_delta", event
