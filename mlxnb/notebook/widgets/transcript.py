"""What a chat shows of a conversation: what was said, what came of it, and what it took."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlxnb.errors import MlxnbError
from mlxnb.notebook.widgets.chat_blocks import Blocks
from mlxnb.records.colours import REUSED
from mlxnb.records.turn import ToolCall, Turn
from mlxnb.sessions.messages import Message, result_message

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine
    from mlxnb.sessions.session import Session
    from mlxnb.sessions.toolbox_calls import Called

LONG = 8_000
"""Tokens of a prompt beyond which nobody is asked where each was reused from."""
LOST = "gone with its host; the model does not see this turn again"
_ids = itertools.count(1)
_ENDS = {
    "length": "cut at max_tokens",
    "stop_sequence": "at a stop string",
    "cancelled": "stopped; the model does not see this turn again",
    "error": "failed; the model does not see this turn again",
}


@dataclass(slots=True, eq=False)
class Exchange:
    """One turn as a chat shows it: what came from the user or from tools, and the answer.

    Attributes
    ----------
    said
        What the user said; None where the turn goes on from results of tools.
    results
        Those results: ``id``, ``name`` and ``text`` of each.
    calls
        The calls of the answer: ``id``, ``name`` and ``arguments`` as JSON.
    outputs
        What its functions have printed and displayed: ``id``, ``name``, ``text``, ``images``.
    kept
        It is part of the session's history.
    meter
        What the turn took; None while it runs, and where nobody has seen it.
    request
        The front end's own id of what began it.
    pending
        A call of it that is asked about or being made.
    """

    said: str | None
    results: list[dict[str, str]] = field(default_factory=list)
    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, str]] = field(default_factory=list)
    kept: bool = True
    running: bool = False
    meter: dict[str, Any] | None = None
    request: str | None = None
    pending: dict[str, Any] | None = None
    outputs: list[dict[str, Any]] = field(default_factory=list)
    id: int = field(default_factory=lambda: next(_ids))
    answer: Blocks = field(default_factory=Blocks)
    thought: Blocks = field(default_factory=Blocks)

    def same(self, other: Exchange) -> bool:
        """Whether both show the same turn."""
        mine, others = (
            (e.said, e.results, e.text, e.reasoning, [c["id"] for c in e.calls])
            for e in (self, other)
        )
        return mine == others

    def end(self, turn: Turn, took: dict[str, Any]) -> None:
        """All of a turn that has ended, and its meter."""
        if turn.text != self.text:
            self.text, self.answer = turn.text, Blocks(turn.text)
        if turn.reasoning != self.reasoning:
            self.reasoning, self.thought = turn.reasoning, Blocks(turn.reasoning)
        self.calls = [as_call(call) for call in turn.tool_calls]
        self.running, self.meter = False, took
        self.kept = turn.ended_well

    def fail(self, problem: str) -> None:
        """Say what went wrong with it."""
        self.meter = {**(self.meter or {}), "problem": problem}

    def lose(self) -> None:
        """Its session is gone: what was said stays in sight."""
        if self.kept:
            self.kept, self.meter = False, {**(self.meter or {}), "end": LOST}

    def told(self) -> dict[str, Any]:
        """All of it, for the front end."""
        return {
            "id": self.id,
            "request": self.request,
            "said": self.said,
            "results": self.results,
            "reasoning": self.thought.all(not self.running),
            "answer": self.answer.all(not self.running),
            "calls": self.calls,
            "kept": self.kept,
            "running": self.running,
            "pending": self.pending,
            "outputs": self.outputs,
            "meter": self.meter,
        }


def as_call(call: ToolCall) -> dict[str, str]:
    """A tool call for the front end."""
    arguments = json.dumps(call.arguments, ensure_ascii=False, indent=2)
    return {"id": call.id, "name": call.name, "arguments": arguments}


def as_result(called: Called) -> dict[str, str]:
    """What a call came to, for the front end; the text is the history's."""
    failed = called.error is not None
    return _result(result_message(called.call_id, called.name, called.told, failed))


def _result(message: Message) -> dict[str, str]:
    """A message with a result, for the front end."""
    content = str(message.get("content") or "")
    return {"id": message["tool_call_id"], "name": message["name"], "text": content}


def results_due(session: Session) -> list[dict[str, str]]:
    """What the calls at the end of a session came to, as far as this process knows."""
    last, called = session.last, session.toolbox.calls
    if last is None or not called or (last.ended_well and not last.tool_calls):
        return []
    return _results(session, called[-1].turn_id, session.history[-1:])


def results_of(session: Session, turn: Turn | None) -> list[dict[str, str]]:
    """What the calls of a turn came to, as far as this process knows; others may have followed."""
    if turn is None or not turn.tool_calls:
        return []
    return _results(session, turn.id, session.history)


def _results(session: Session, turn_id: str, messages: list[Message]) -> list[dict[str, str]]:
    """What a turn's calls came to; none where it was stopped or taken back: no message has them."""
    there = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    return [as_result(c) for c in session.toolbox.of_turn(turn_id) if c.call_id in there]


def meter(turn: Turn, engine: Engine) -> dict[str, Any]:
    """What a turn took, in tokens and seconds, and how it ended where that is unusual.

    A turn whose host was lost has no counts: nobody has told them. ``origins`` are the cached
    tokens by where their KV came from; empty where that is not known.
    """
    usage, end = turn.usage, _ENDS.get(turn.finish_reason or "", "")
    if turn.finish_reason == "error" and not usage.total_tokens:
        return {"end": end}
    return {
        "cached": usage.cached_tokens,
        "computed": usage.prefill_tokens,
        "generated": usage.output_tokens,
        "origins": _origins(turn, engine),
        "ttft_s": turn.timing.ttft_s,
        "end": end,
    }


def _origins(turn: Turn, engine: Engine) -> dict[str, int]:
    if not 0 < turn.cached_tokens <= turn.prompt_tokens <= LONG:
        return {}
    try:
        origins = engine.tokens(turn, show_text=False)["origin"].tolist()
    except MlxnbError:
        return {}  # its tokens are not kept, or the host is gone by now
    return {name: origins.count(name) for name in REUSED if name in origins}


def noted(meter: dict[str, Any] | None) -> str:
    """A meter on one line; empty where there is none."""
    if meter is None:
        return ""
    counts = (f"{n} {meter[n]:,}" for n in ("cached", "computed", "generated") if n in meter)
    facts = [" | ".join(counts)]
    if meter.get("ttft_s") is not None:
        facts.append(f"first token {meter['ttft_s']:.2f} s")
    return " · ".join(filter(None, [*facts, meter.get("end"), meter.get("problem")]))


def exchanges(history: Sequence[Message]) -> Iterator[Exchange]:
    """The turns of a history; results that no answer has followed yet are left out."""
    said: str | None = None
    results: list[dict[str, str]] = []
    for message in history:
        content = str(message.get("content") or "")
        if message["role"] == "user":
            said = content
        elif message["role"] == "tool":
            results.append(_result(message))
        elif message["role"] == "assistant":
            yield _answered(said, results, content, message)
            said, results = None, []


def _answered(
    said: str | None, results: list[dict[str, str]], text: str, message: Message
) -> Exchange:
    reasoning = str(message.get("reasoning_content") or "")
    called = message.get("tool_calls", ())
    calls = [
        as_call(ToolCall(c["id"], c["function"]["name"], c["function"]["arguments"]))
        for c in called
    ]
    made = Exchange(said, results, text, reasoning, calls)
    made.answer, made.thought = Blocks(text), Blocks(reasoning)
    return made


def merged(shown: Sequence[Exchange], history: Sequence[Exchange]) -> list[Exchange]:
    """What to show of a history, where ``shown`` was shown before.

    Turns that are there already stay, with their meters; so do turns that came to nothing, as
    long as all that they followed is there.
    """
    kept, at = list[Exchange](), 0
    for exchange in shown:
        if not exchange.kept:
            kept.append(exchange)
        elif at < len(history) and exchange.same(history[at]):
            kept.append(exchange)
            at += 1
        else:
            break
    return [*kept, *history[at:]]
