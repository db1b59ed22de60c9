"""Answers as the engine would make them: real pieces of text, and the turn that comes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxnb.engine.events import Done, Event, Piece, Prefill
from mlxnb.records.turn import FinishReason, Turn
from mlxnb.text.answer import AnswerMachine

from .answers import USAGE, turn

THINK = ("<think>", "</think>")
TAGS = ("<tool_call>", "</tool_call>")
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"name": "look", "arguments": {"at": "sky"}}</tool_call>'


@dataclass
class Played:
    """The events of one answer, the last of which is `Done`, and its turn."""

    events: list[Event]
    turn: Turn

    @property
    def pieces(self) -> list[Event]:
        return self.events[:-1]


def play(
    fragments: Iterable[str],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    stops: Sequence[str] = (),
    think: tuple[str, str] | None = THINK,
    inside: bool = False,
    cut: bool = False,
) -> Played:
    """What the engine tells while a model says ``fragments``; ``cut``: by its length."""
    made = 0

    def new_id() -> str:
        nonlocal made
        made += 1
        return f"call_{made}"

    machine = AnswerMachine(
        think=think,
        starts_in_reasoning=inside,
        tool_tags=TAGS,
        parse_tool=lambda body, tools: json.loads(body),
        tools=tools,
        stops=stops,
        new_id=new_id,
    )
    pieces: list[Piece] = []
    for fragment in fragments:
        if machine.stop_sequence is None:
            pieces += machine.feed(fragment)
    pieces += machine.finish(cut)
    reason: FinishReason = "length" if cut else "stop"
    if machine.stop_sequence is not None:
        reason = "stop_sequence"
    elif machine.tool_calls and not cut:
        reason = "tool_calls"
    ended = turn(
        reason,
        text=machine.text,
        reasoning=machine.reasoning,
        tool_calls=machine.tool_calls,
        stop_sequence=machine.stop_sequence,
    )
    return Played(
        [
            Prefill(USAGE.cached_tokens, USAGE.prompt_tokens, USAGE.cached_tokens),
            *pieces,
            Done(reason),
        ],
        ended,
    )
