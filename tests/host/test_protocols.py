"""The vendors' own clients against a real host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from wire.anthropic_stream import check_message, check_stream, decoded
from wire.checks import check_events, parse_sse, sdk_response

from mlxnb.link import keys
from mlxnb.models.source import ModelSource

from .talk import JSON, post
from .world import World

RESPONSES, MESSAGES = "/mlxnb/v1/responses", "/mlxnb/v1/messages"
QUIET = {RESPONSES: b"event: response.in_progress", MESSAGES: b"event: ping"}
ANSWER = "one two three four five six"
Say = Callable[..., World]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Say]:
    """A host whose model gives these answers."""
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    worlds = []

    def make(*answers: str, **options: Any) -> World:
        world = World.saying(tmp_path, *(answers or (ANSWER,)), **options)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.close()


def ask_responses(**more: Any) -> dict[str, Any]:
    return {"model": "talker", "input": "Count, please."} | more


def ask_messages(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Count, please."}]
    return {"model": "talker", "messages": messages, "max_tokens": 50} | more


def streamed(world: World, path: str, body: dict[str, Any]) -> tuple[Any, bytes]:
    answer = post(world.client, body | {"stream": True}, path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return answer.headers, answer.content


# --- Responses --------------------------------------------------------------------------------


def test_a_response_is_streamed_as_its_sdk_types_it(say: Say) -> None:  # W29, W31, W56
    headers, raw = streamed(say(), RESPONSES, ask_responses())
    response = check_events(parse_sse(raw))
    assert response["output"][0]["content"][0]["text"] == ANSWER
    assert headers["x-session-cache"] == "fresh"


def test_a_plain_response_says_the_same(say: Say) -> None:  # W40
    world = say()
    answer = post(world.client, ask_responses(), RESPONSES)
    sdk_response(answer.json())
    assert answer.json()["output"][0]["content"][0]["text"] == ANSWER


def test_openais_client_streams_and_continues(say: Say) -> None:  # W10, W19, W23
    client = say("Hello.", "Again.").openai()
    with client.responses.stream(model="talker", input="Hi") as stream:
        first = stream.get_final_response()
    assert first.output_text == "Hello."
    raw = client.responses.with_raw_response.create(
        model="talker", input="And?", previous_response_id=first.id
    )
    assert raw.headers["x-session-cache"] == "hit"
    assert int(raw.headers["x-cached-tokens"]) > 0
    assert raw.parse().output_text == "Again."


def test_a_stored_response_is_there_until_it_is_deleted(say: Say) -> None:
    client = say().openai()
    made = client.responses.create(model="talker", input="Hi")
    assert client.responses.retrieve(made.id).output_text == ANSWER
    items = client.responses.input_items.list(made.id)
    assert [item.content[0].text for item in items.data] == ["Hi"]  # type: ignore[union-attr]
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_a_response_is_there_for_its_caller_alone(say: Say) -> None:  # W65
    world = say("Hello.", "Again.")
    made = world.openai(keys.new("one")).responses.create(model="talker", input="Hi")
    other = world.openai(keys.new("two"))
    for ask in (
        lambda: other.responses.retrieve(made.id),
        lambda: other.responses.delete(made.id),
        lambda: other.responses.cancel(made.id),
        lambda: other.responses.input_items.list(made.id),
        lambda: other.responses.create(model="talker", input="?", previous_response_id=made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            ask()


def test_a_running_response_can_be_cancelled_by_its_id(say: Say) -> None:
    world = say()
    client = world.openai()
    with world.gate(3) as gate, client.responses.stream(model="talker", input="Hi") as stream:
        created = next(iter(stream))
        gate.wait()
        cancelled = client.responses.cancel(created.response.id)  # type: ignore[union-attr]
        sdk_response(cancelled.to_dict(mode="json"))
        assert cancelled.status == "cancelled"
        gate.open()
        with pytest.raises(openai.APIError, match="cancelled"):
            list(stream)


def test_tokens_are_counted_as_they_would_be_prompted(say: Say) -> None:  # W51
    world = say()
    client = world.openai()
    counted = client.responses.input_tokens.count(model="talker", input="Hi there")
    made = client.responses.create(model="talker", input="Hi there")
    assert made.usage is not None
    assert counted.input_tokens == made.usage.input_tokens
    messages: Any = [{"role": "user", "content": "Hi there"}]
    same = world.anthropic().messages.count_tokens(model="talker", messages=messages)
    assert same.input_tokens == counted.input_tokens


# --- Messages ---------------------------------------------------------------------------------


def test_a_message_is_streamed_as_its_sdk_types_it(say: Say) -> None:  # W34
    headers, raw = streamed(say(), MESSAGES, ask_messages())
    check_stream(decoded(raw))
    assert headers["x-session-cache"] == "fresh"


def test_a_plain_message_says_the_same(say: Say) -> None:
    answer = post(say().client, ask_messages(), MESSAGES)
    check_message(answer.json())
    assert answer.json()["content"][0]["text"] == ANSWER


def test_anthropics_client_streams(say: Say) -> None:
    client = say().anthropic()
    with client.messages.stream(**ask_messages()) as stream:
        assert "".join(stream.text_stream) == ANSWER


def test_headers_say_what_is_reused_on_streams_too(say: Say) -> None:  # W21
    world = say()
    streamed(world, MESSAGES, ask_messages())
    headers, _ = streamed(world, MESSAGES, ask_messages())
    assert headers["x-session-cache"] == "prefix_hit"
    assert int(headers["x-cached-tokens"]) > 0


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
def test_a_stream_is_kept_alive_while_prefill_takes_long(
    say: Say, path: str
) -> None:  # W33, C24, C50
    world = say(keep_alive_s=0.02)
    body = ask_responses() if path == RESPONSES else ask_messages()
    content, quiet = json.dumps(body | {"stream": True}).encode(), b""
    with (
        world.gate() as gate,
        world.client.stream("POST", path, body=content, headers=JSON) as answer,
    ):
        chunks = answer.iter_bytes()
        while quiet.count(QUIET[path]) < 5:
            quiet += next(chunks)
        gate.open()
        raw = quiet + b"".join(chunks)
    if path == RESPONSES:
        check_events(parse_sse(raw))
    else:
        check_stream(decoded(raw))


def test_the_demo_model_answers_and_reuses(
    demo_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path))
    world = World([ModelSource("demo", demo_path)])
    try:
        body = {"model": "demo", "input": "Say hello.", "max_output_tokens": 8, "temperature": 0}
        plain = post(world.client, body, RESPONSES).json()
        headers, raw = streamed(world, RESPONSES, body)
    finally:
        world.close()
    response = check_events(parse_sse(raw))
    assert response["output"][0]["content"] == plain["output"][0]["content"]
    assert int(headers["x-cached-tokens"]) > 0


# --- chat completions -------------------------------------------------------------------------


def test_a_completion_is_streamed_and_plain(say: Say) -> None:
    client = say().openai()
    messages: Any = [{"role": "user", "content": "Count, please."}]
    plain = client.chat.completions.create(model="talker", messages=messages)
    assert plain.choices[0].message.content == ANSWER
    chunks = client.chat.completions.create(model="talker", messages=messages, stream=True)
    told = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(told) == ANSWER


# --- errors -----------------------------------------------------------------------------------


def test_errors_are_the_clients_own_classes(say: Say) -> None:  # W3
    world = say()
    client, other = world.openai(), world.anthropic()
    with pytest.raises(openai.NotFoundError, match="talker"):  # W9: it lists what is there
        client.responses.create(model="nothing", input="Hi")
    with pytest.raises(openai.BadRequestError, match="input"):
        client.responses.create(model="talker", input=[])
    with pytest.raises(openai.BadRequestError, match="context window"):
        client.responses.create(model="talker", input="word " * 5000)
    with pytest.raises(openai.AuthenticationError):
        world.openai("mlxnb_wrong").responses.create(model="talker", input="Hi")
    with pytest.raises(anthropic.NotFoundError):
        other.messages.create(**ask_messages(model="nothing"))
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        other.messages.create(**ask_messages(max_tokens=0))
    with pytest.raises(anthropic.AuthenticationError) as raised:
        world.anthropic("mlxnb_wrong").messages.create(**ask_messages())
    body: Any = raised.value.body
    assert body["request_id"] == raised.value.request_id


def test_a_malformed_request_costs_no_load(say: Say) -> None:  # W13
    world = say()
    world.engine.unload("talker")
    assert post(world.client, ask_responses(max_output_tokens=0), RESPONSES).status_code == 400
    assert post(world.client, ask_messages(messages=[]), MESSAGES).status_code == 400
    assert world.engine.core.names() == []
    assert post(world.client, ask_responses(), RESPONSES).status_code == 200


def test_too_many_requests_are_told_to_come_back(say: Say) -> None:  # W45
    world = say()
    with world.gate() as gate, ThreadPoolExecutor(40) as pool:
        first = pool.submit(post, world.client, ask_responses(), RESPONSES)
        gate.wait()
        more = [pool.submit(post, world.client, ask_responses(), RESPONSES) for _ in range(20)]
        full = next(answer for f in as_completed(more) if (answer := f.result()).status_code == 429)
        gate.open()
        assert first.result().status_code == 200
    assert full.headers["retry-after"] == "1"
    assert full.json()["error"]["code"] == "queue_full"


# --- models -----------------------------------------------------------------------------------


def test_models_are_listed_in_the_callers_shape(say: Say) -> None:
    world = say()
    assert [model.id for model in world.openai().models.list()] == ["talker"]
    assert [model.id for model in world.anthropic().models.list()] == ["talker"]
    assert world.openai().models.retrieve("talker").owned_by == "mlxnb"
    assert world.anthropic().models.retrieve("claude-9").max_input_tokens == 4096  # C52
    with pytest.raises(openai.NotFoundError):
        world.openai().models.retrieve("nothing/at/all")
