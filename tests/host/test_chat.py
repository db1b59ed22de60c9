"""Chat completions through the vendor's own client, against a real host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from wire.openai_chat import check_completion, check_stream, completion_of, decoded

from .talk import post
from .world import World

CHAT = "/mlxnb/v1/chat/completions"
ANSWER = "one two three four five six"
CALL = '<tool_call>{"name": "look", "arguments": {"at": "sky"}}</tool_call>'
USER = {"role": "user", "content": "Count, please."}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
Say = Callable[..., World]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Say]:
    """A host whose model gives these answers."""
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    worlds = []

    def make(*answers: str) -> World:
        world = World.saying(tmp_path, *(answers or (ANSWER,)))
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.close()


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "talker", "messages": [USER], **fields}


def test_chunks_add_up_to_the_completion(say: Say) -> None:  # W40
    world = say()
    plain = post(world.client, body(), CHAT).json()
    check_completion(plain)
    raw = post(world.client, body(stream=True), CHAT).content
    check_stream(decoded(raw))
    streamed = completion_of(decoded(raw))["choices"][0]["message"]["content"]
    assert streamed == plain["choices"][0]["message"]["content"] == ANSWER


def test_the_client_streams_with_its_usage(say: Say) -> None:  # W26
    client = say().openai()
    stream = client.chat.completions.create(
        **body(), stream=True, stream_options={"include_usage": True}
    )
    *_, last = stream
    assert last.usage is not None
    assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens


def test_a_round_of_tools(say: Say) -> None:  # W11
    client = say(CALL, "Blue.").openai()
    first = client.chat.completions.create(**body(tools=[LOOK]))
    (call,) = first.choices[0].message.tool_calls or ()
    said = first.choices[0].message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": call.id, "content": "blue"}
    second = client.chat.completions.create(**body(tools=[LOOK], messages=[USER, said, result]))
    assert first.choices[0].finish_reason == "tool_calls"
    assert second.choices[0].message.content == "Blue."
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) > 0


def test_the_turn_is_in_the_frame(say: Say) -> None:
    world = say()
    world.openai().chat.completions.create(**body())
    assert list(world.engine.turns()["source"]) == ["chat_completions"]


def test_what_is_refused_is_the_client_s_error(say: Say) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        say().openai().chat.completions.create(**body(n=2))
    assert refused.value.param == "n"


def test_w9_an_unknown_model_is_not_found(say: Say) -> None:
    with pytest.raises(openai.NotFoundError):
        say().openai().chat.completions.create(**body(model="nobody"))
