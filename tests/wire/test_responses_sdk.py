"""The vendor's own client over what the machine sends: its stream helper, parsers and errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from mlxnb.engine.events import Piece
from mlxnb.errors import ContextOverflow, EngineDied, ModelNotFound, QueueFull
from mlxnb.wire import errors, sse
from mlxnb.wire.body import read
from mlxnb.wire.responses import Machine, parse

from .answers import FakeAnswer, arguments, call, start, text, thought, turn
from .checks import Event, check_events, parse_sse

PIECES = [
    thought("Hm"),
    text("Let me\u2028see."),
    start(),
    arguments('{"x"'),
    arguments(": 1}"),
    call("f", {"x": 1}),
    call("patch", {"input": "*** Begin"}, "call_2"),
]
TOOLS: list[Any] = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False},
    {"type": "custom", "name": "patch"},
]


def client(answer: Any) -> openai.OpenAI:
    """A client whose requests are answered by a function of their body."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        return answer(read(request.content))

    transport = httpx2.MockTransport(handle)
    return openai.OpenAI(
        api_key="k",
        base_url="http://localhost/mlxnb/v1",
        max_retries=0,
        http_client=httpx2.Client(transport=transport),
    )


def events(machine: Machine, pieces: Iterable[Piece]) -> Iterator[Event]:
    yield from machine.opening()
    yield from machine.quiet()
    for piece in pieces:
        yield from machine.feed(piece)
    yield from machine.finish(turn("tool_calls"))


def serve(body: dict[str, Any], pieces: Iterable[Piece] = tuple(PIECES)) -> httpx2.Response:
    """As the route does: a stream, or the same as one body."""
    machine = Machine(parse(body), FakeAnswer())
    raw = b"".join(sse.encode(name, payload) for name, payload in events(machine, pieces))
    check_events(parse_sse(raw))
    if not body.get("stream"):
        return httpx2.Response(200, json=machine.body())
    return httpx2.Response(200, content=raw, headers={"Content-Type": "text/event-stream"})


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", "reasoning": {"summary": "auto"}, "tools": TOOLS, **fields}


def bare(value: Any) -> Any:
    """Without what the helper adds."""
    if isinstance(value, dict):
        return {k: bare(v) for k, v in value.items() if not k.startswith("parsed")}
    return [bare(v) for v in value] if isinstance(value, list) else value


def test_the_stream_helper_gathers_the_plain_answer() -> None:
    with client(serve).responses.stream(**ask()) as stream:
        final = stream.get_final_response()
    plain = client(serve).responses.create(**ask())
    assert bare(final.to_dict()["output"]) == plain.to_dict()["output"]
    assert final.output_text == plain.output_text == "Let me\u2028see."


def test_every_event_reaches_a_plain_iteration() -> None:
    kinds = [event.type for event in client(serve).responses.create(**ask(), stream=True)]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert "response.custom_tool_call_input.delta" in kinds


def test_a_schema_is_parsed_into_its_model() -> None:
    class City(BaseModel):
        name: str

    def answer(body: dict[str, Any]) -> httpx2.Response:
        assert body["text"]["format"]["type"] == "json_schema"
        return serve(body, [text('{"name": '), text('"Bergen"}')])

    parsed = client(answer).responses.parse(model="m", input="hi", text_format=City)
    assert parsed.output_parsed == City(name="Bergen")


def test_w57_a_failure_in_the_stream_is_an_error_with_its_message() -> None:
    def answer(body: dict[str, Any]) -> httpx2.Response:
        machine = Machine(parse(body), FakeAnswer())
        sent = [*machine.opening(), *machine.feed(text("a")), *machine.fail(EngineDied("it died"))]
        raw = b"".join(sse.encode(name, payload) for name, payload in sent)
        return httpx2.Response(200, content=raw, headers={"Content-Type": "text/event-stream"})

    with pytest.raises(openai.APIError, match="it died"):
        list(client(answer).responses.create(**ask(), stream=True))


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ContextOverflow(9, 8), openai.BadRequestError),
        (ModelNotFound("no such model"), openai.NotFoundError),
        (QueueFull("full"), openai.RateLimitError),
        (EngineDied("died"), openai.InternalServerError),
        (errors.WireError(401, "who are you"), openai.AuthenticationError),
        (errors.WireError(409, "changed", code="model_changed"), openai.ConflictError),
    ],
)
def test_w3_errors_are_the_client_s_own_classes(raised: Exception, kind: type) -> None:
    told = errors.of(raised)

    def answer(body: dict[str, Any]) -> httpx2.Response:
        return httpx2.Response(told.status, content=json.dumps(errors.openai_body(told)))

    with pytest.raises(kind) as caught:
        client(answer).responses.create(**ask())
    assert told.message in str(caught.value)
    assert caught.value.code == told.code
