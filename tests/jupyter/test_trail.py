"""W41, W57: a stream that breaks off between any two of its events has its right end."""

from __future__ import annotations

from typing import Any

import pytest
from wire.answers import FakeAnswer, arguments, call, start, text, thought
from wire.anthropic_stream import check_stream, decoded
from wire.checks import check_events, parse_sse

from mlxnb.engine.events import Prefill
from mlxnb.jupyter.trail import Trail
from mlxnb.wire import Event, messages, responses
from mlxnb.wire.errors import WireError
from mlxnb.wire.sse import encode

LOST = WireError(503, "the host is gone", code="host_gone")
PIECES = [
    Prefill(0, 5, 0),
    thought("hm"),
    thought(" hm"),
    text("wo"),
    text("rd"),
    start(),
    arguments('{"x":'),
    arguments("1}"),
    call("f"),
    text("more"),
    start("patch"),
    arguments('{"input": "a'),
]
TOOLS = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch"},
]


def batches(machine: Any) -> list[list[Event]]:
    """The events of a stream, as they are written together."""
    return [machine.opening(), *(machine.feed(piece) for piece in PIECES), machine.quiet()]


def broken(path: str, gone_out: list[Event]) -> bytes:
    """The whole of a stream of which these events have gone out."""
    trail, sent = Trail(path), b"".join(encode(*event) for event in gone_out)
    for place in range(0, len(sent), 100):
        trail.feed(sent[place : place + 100])
    assert trail.between and not trail.ended
    return sent + trail.broken_off(LOST, "req_1")


@pytest.mark.parametrize("count", range(1, len(PIECES) + 3))
def test_responses(count: int) -> None:
    body = {"model": "m", "input": "hi", "tools": TOOLS, "reasoning": {"summary": "auto"}}
    machine = responses.Machine(responses.parse(body), FakeAnswer())
    gone_out = [event for batch in batches(machine)[:count] for event in batch]
    final = check_events(parse_sse(broken("/mlxnb/v1/responses", gone_out)))
    assert final["status"] == "failed" and final["error"]["message"] == LOST.message
    same = responses.Machine(responses.parse(body), FakeAnswer())
    for batch in range(count):
        same.opening() if batch == 0 else batch <= len(PIECES) and same.feed(PIECES[batch - 1])
    same.fail(LOST)
    assert final["output"] == same.body()["output"]  # as the host itself would have ended it


@pytest.mark.parametrize("display", ["summarized", "omitted"])
@pytest.mark.parametrize("count", range(1, len(PIECES) + 3))
def test_messages(count: int, display: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    request = messages.parse(body | {"thinking": {"type": "adaptive", "display": display}})
    made = batches(messages.Machine(request, FakeAnswer(), request_id="req_1"))
    gone_out = [event for batch in made[:count] for event in batch]
    told = decoded(broken("/mlxnb/v1/messages?beta=true", gone_out))
    check_stream(told)
    assert told[-1][1]["error"]["message"] == LOST.message


def test_only_what_is_open_is_kept() -> None:
    trail = Trail("/mlxnb/v1/responses")
    request = responses.parse({"model": "m", "input": "hi", "tools": TOOLS})
    machine = responses.Machine(request, FakeAnswer())
    events = machine.opening()
    for _ in range(50):
        events += machine.feed(text("word")) + machine.feed(start()) + machine.feed(call("f"))
    for event in events:
        trail.feed(encode(*event))
    assert len(trail._kept) == 101  # the first event, and two items a round
