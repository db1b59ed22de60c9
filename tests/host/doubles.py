"""A protocol of a few lines and a service that a test moves by hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mlxnb.engine.events import Done, Event, Piece
from mlxnb.host.door import Asked, Door
from mlxnb.records.turn import FinishReason, Turn, Usage
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.serving.health import Health, Status
from mlxnb.wire.errors import WireError


@dataclass
class HandAnswer:
    """An answer that says what a test tells it to."""

    ask: Ask
    model: str = "hand"
    cache: str = "fresh"
    cached_tokens: int = 0
    turn: Turn | None = None
    error: Exception | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    listener: Callable[[Event], None] | None = None
    followed: threading.Event = field(default_factory=threading.Event)
    settled: threading.Event = field(default_factory=threading.Event)

    def follow(self, listener: Callable[[Event], None]) -> None:
        self.listener = listener
        self.followed.set()

    def cancel(self) -> None:
        if not self.cancelled.is_set():
            self.cancelled.set()
            self.end("cancelled")

    def say(self, text: str) -> None:
        assert self.followed.wait(30)
        assert self.listener is not None
        self.listener(Piece("text", text))

    def end(self, reason: FinishReason = "stop", error: Exception | None = None) -> None:
        assert self.followed.wait(30)
        assert self.listener is not None
        self.turn = Turn("t1", finish_reason=reason, usage=Usage(3, 0, 2))
        self.listener(Done(reason, error))


class HandService:
    """Hands its answers out, one a request, and keeps what is filed."""

    def __init__(self) -> None:
        self.answers: list[HandAnswer] = []
        self.begun = threading.Semaphore(0)
        self.refusal: Exception | None = None
        self.status: Status = "ok"
        self.filed: list[dict[str, Any]] = []
        self.on_begin: Callable[[], object] = lambda: None
        self.beginning = threading.Event()
        self.on_file: Callable[[], object] = lambda: None
        self.callers: list[str] = []

    def begin(self, ask: Ask) -> HandAnswer:
        self.beginning.set()
        self.on_begin()
        if self.refusal is not None:
            raise self.refusal
        answer = HandAnswer(ask)
        self.answers.append(answer)
        self.callers.append(ask.caller)
        self.begun.release()
        return answer

    def next(self) -> HandAnswer:
        """The answer of the newest request, once it has begun."""
        assert self.begun.acquire(timeout=30), "no request came"
        return self.answers[-1]

    def file(self, answer: Any, *, response: Any, input_items: Any) -> None:
        self.on_file()
        self.filed.append(response)

    def unfile(self, answer: Any) -> None:
        self.filed.pop()

    def health(self) -> Health:
        return Health(self.status, "", (), (), 0, 0, 0)

    def loaded(self) -> list[str]:
        return ["hand"]

    def counters(self) -> dict[str, float]:
        return {"cache_bytes": 7.0, "model_loads": 2.0}


class EchoMachine:
    """Text as it comes. ``break`` in it is a fault of the machine."""

    def __init__(self, answer: Any, request_id: str) -> None:
        self.text = ""

    def opening(self) -> list[tuple[str, dict[str, Any]]]:
        return [("open", {})]

    def feed(self, event: Event) -> list[tuple[str, dict[str, Any]]]:
        if not isinstance(event, Piece):
            return []
        if event.text == "break":
            raise KeyError("secret words of a prompt")
        self.text += event.text
        return [("text", {"text": event.text})]

    def quiet(self) -> list[tuple[str, dict[str, Any]]]:
        return [("quiet", {})]

    def finish(self, turn: Turn) -> list[tuple[str, dict[str, Any]]]:
        return [("end", {"reason": turn.finish_reason})]

    def fail(self, error: Exception) -> list[tuple[str, dict[str, Any]]]:
        return [("failed", {"kind": type(error).__name__})]

    def abort(self) -> None: ...

    def body(self) -> dict[str, Any]:
        return {"text": self.text}

    def to_file(self, answer: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        return self.body(), []


def _understand(service: Any, body: Any, caller: str) -> Asked:
    if not isinstance(body.get("text"), str):
        raise WireError(400, "text is missing", param="text")
    ask = Ask("hand", (), "responses", caller=caller)
    return Asked(ask, body.get("stream", False), EchoMachine)


def _encode(name: str, payload: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(payload)}\n\n".encode()


ECHO = Door("responses", "/v1/echo", "openai", _understand, _encode)
