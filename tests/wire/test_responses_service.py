"""Requests through a real service over a scripted model: W12, W16, W19, W23 and W40 in one line."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted import scripted_folder

from mlxnb.engine.events import Done
from mlxnb.engine.events import Event as EngineEvent
from mlxnb.errors import UnknownResponse
from mlxnb.models.resolve import resolve
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.service import Service
from mlxnb.sessions.serving.store import Store
from mlxnb.wire import responses

from .checks import check_events, sdk_response

CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
THOUGHT = "<think>\nHm.\n</think>\n\nWell."
TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
Run = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    engine = LocalEngine(budget=64 * 2**20)
    made: list[Service] = []

    def start(*answers: str) -> Service:
        source = resolve(scripted_folder(tmp_path / "model", answers), trust_model_code=True)
        source = dataclasses.replace(source, name="talker")
        catalog = Catalog([source], aliases={}, machine=False)
        store = Store(tmp_path / "responses.sqlite")
        made.append(Service(engine, catalog=catalog, store=store, host="abcdefgh"))
        engine.load_source(source, progress=False)
        return made[-1]

    yield start
    for service in made:
        service.close()
    engine.close()


def run(service: Service, body: dict[str, Any]) -> dict[str, Any]:
    """A request as a door takes it, to its judged and filed response."""
    request = responses.parse({"model": "talker", **body})
    previous = responses.previous_id(request)
    chain = service.chain(previous, "ada") if previous else None
    named = responses.references(request)
    outputs = {one: service.stored(one, "ada").response["output"] for one in named}
    request = responses.settled(request, chain, outputs)
    answer = service.begin(responses.ask(request, chain, "ada"))
    machine = responses.Machine(request, answer)
    events, done = machine.opening(), threading.Event()

    def take(event: EngineEvent) -> None:
        events.extend(machine.feed(event))
        if isinstance(event, Done):
            done.set()

    answer.follow(take)
    assert done.wait(60), "an answer never ended"
    assert answer.turn is not None
    events += machine.finish(answer.turn)
    final = check_events(events)
    sdk_response(machine.body())
    filed, items = machine.to_file(answer)
    service.file(answer, response=filed, input_items=items)
    return final


def test_an_answer_is_a_response(serve: Callable[..., Service]) -> None:
    final = run(serve("One."), {"input": "a"})
    (message,) = final["output"]
    assert message["content"][0]["text"] == "One."
    assert final["model"] == "talker"
    assert final["usage"]["input_tokens"] > 0


def test_w23_a_filed_response_is_found_as_it_was_sent(serve: Callable[..., Service]) -> None:
    service = serve("One.")
    final = run(service, {"input": "a"})
    row = service.stored(final["id"], "ada")
    assert row.response == final
    assert [item["role"] for item in row.input_items] == ["user"]


def test_w19_a_continuation_reuses_what_it_continues(serve: Callable[..., Service]) -> None:
    service = serve("One.", "Two.")
    first = run(service, {"input": "a"})
    second = run(service, {"input": "b", "previous_response_id": first["id"]})
    assert second["previous_response_id"] == first["id"]
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0


def test_w12_a_round_of_tools_over_a_stored_response(serve: Callable[..., Service]) -> None:
    service = serve(CALL, "Done.")
    first = run(service, {"input": "a", "tools": TOOLS})
    (call,) = first["output"]
    assert (call["type"], call["arguments"]) == ("function_call", '{"x": 1}')
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "5"}
    body = {"previous_response_id": first["id"], "tools": TOOLS}
    second = run(service, {**body, "input": [call, result]})
    assert second["output"][0]["content"][0]["text"] == "Done."


def test_w16_a_round_of_tools_for_a_client_that_keeps_its_history(
    serve: Callable[..., Service],
) -> None:
    service = serve(CALL, "Done.")
    asked = {"role": "user", "content": "a"}
    first = run(service, {"input": [asked], "tools": TOOLS, "store": False})
    result = {
        "type": "function_call_output",
        "call_id": first["output"][0]["call_id"],
        "output": "5",
    }
    history = [asked, *first["output"], result]
    second = run(service, {"input": history, "tools": TOOLS, "store": False})
    assert second["output"][0]["content"][0]["text"] == "Done."
    with pytest.raises(UnknownResponse):
        service.stored(first["id"], "ada")


def test_an_item_of_a_stored_response_can_be_named(serve: Callable[..., Service]) -> None:
    service = serve("One.", "Two.")
    first = run(service, {"input": "a"})
    named = {"type": "item_reference", "id": first["output"][0]["id"]}
    asked = {"role": "user", "content": "a"}
    second = run(service, {"input": [asked, named, {"role": "user", "content": "b"}]})
    items = service.stored(second["id"], "ada").input_items
    assert [item["role"] for item in items] == ["user", "assistant", "user"]


@pytest.mark.parametrize(("summary", "kinds"), [("auto", 2), (None, 1)])
def test_w17_reasoning_is_sent_where_it_is_asked_for(
    serve: Callable[..., Service], summary: str | None, kinds: int
) -> None:
    final = run(serve(THOUGHT), {"input": "a", "reasoning": {"summary": summary}})
    assert len(final["output"]) == kinds
    assert final["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_w37_without_tools_their_markup_is_text(serve: Callable[..., Service]) -> None:
    final = run(serve(CALL), {"input": "a"})
    (message,) = final["output"]
    assert message["type"] == "message"
    assert "<tool_call>" not in message["content"][0]["text"]


def test_w32_an_answer_that_is_too_long_is_incomplete(serve: Callable[..., Service]) -> None:
    final = run(serve("One two three four."), {"input": "a", "max_output_tokens": 2})
    assert final["status"] == "incomplete"
    assert final["output"][0]["status"] == "incomplete"


def test_stop_sequences_end_an_answer(serve: Callable[..., Service]) -> None:
    final = run(serve("One. Two."), {"input": "a", "stop": " Two"})
    assert final["status"] == "completed"
    assert final["output"][0]["content"][0]["text"] == "One."
