"""Runs machines over answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlxnb.engine.events import Event as EngineEvent
from mlxnb.records.turn import Turn
from mlxnb.wire import Event
from mlxnb.wire.messages import Machine, parse
from wire.answers import FakeAnswer

from .bodies import body


def machine(answer: FakeAnswer | None = None, **fields: Any) -> Machine:
    """A machine for a request with these fields."""
    return Machine(parse(body(**fields)), answer or FakeAnswer(), request_id="req_1")


def run(made: Machine, events: Iterable[EngineEvent], turn: Turn) -> list[Event]:
    """All that a machine sends."""
    sent = made.opening()
    for event in events:
        sent += made.feed(event)
    return sent + made.finish(turn)


def shape(events: Iterable[Event]) -> list[str]:
    """Names of events; a block's with its type, a delta's with its own."""
    names = []
    for name, payload in events:
        inner = payload.get("content_block") or payload.get("delta") or {}
        short = name.removeprefix("content_").replace("block_delta", "delta")
        names.append(f"{short}:{inner['type']}" if "type" in inner else short)
    return names
