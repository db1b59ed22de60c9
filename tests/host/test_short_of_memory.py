"""A host whose system has no memory left, and one whose model is at fault: what clients get."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from mlxnb.errors import NotEnoughMemory, ShortOfMemory

from .talk import post
from .world import World

RESPONSES, MESSAGES = "/mlxnb/v1/responses", "/mlxnb/v1/messages"
CHAT = "/mlxnb/v1/chat/completions"
HI: Any = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    RESPONSES: {"model": "talker", "input": "Hi"},
    CHAT: {"model": "talker", "messages": HI},
    MESSAGES: {"model": "talker", "messages": HI, "max_tokens": 20},
}


@pytest.fixture
def short(world: World) -> Callable[[bool], None]:
    """Takes the system's memory away, or gives it back; it is taken at first."""
    pressure = world.engine.core._life.pressure
    before = pressure.available

    def take(short: bool = True) -> None:
        pressure.available = (lambda: 0) if short else before

    take()
    return take


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [RESPONSES, CHAT])
def test_openai_s_shape(
    world: World, short: Callable[[bool], None], path: str, stream: bool
) -> None:
    """The status is 429 for streams too: nothing has been sent yet."""
    answer = post(world.client, BODIES[path] | {"stream": stream}, path)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "short_of_memory")
    assert "the system has" in error["message"]
    short(False)
    assert post(world.client, BODIES[path], path).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_s_shape(world: World, short: Callable[[bool], None], stream: bool) -> None:
    answer = post(world.client, BODIES[MESSAGES] | {"stream": stream}, MESSAGES)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert answer.json()["error"]["type"] == "rate_limit_error"
    short(False)
    assert post(world.client, BODIES[MESSAGES], MESSAGES).status_code == 200


def test_the_sdks_know_it(world: World, short: Callable[[bool], None]) -> None:
    with pytest.raises(openai.RateLimitError, match="to spare"):
        world.openai().responses.create(model="talker", input="Hi")
    with pytest.raises(anthropic.RateLimitError, match="to spare"):
        world.anthropic().messages.create(model="talker", max_tokens=20, messages=HI)
    short(False)
    assert world.openai().responses.create(model="talker", input="Hi").output_text == "Hello."


def test_notebooks_of_the_host_get_the_error_by_its_name(
    world: World, short: Callable[[bool], None]
) -> None:
    session = world.engine.session("talker")
    with pytest.raises(ShortOfMemory):
        session.send("Hi")
    assert session.history == []
    short(False)
    assert session.send("Hi").text == "Hello."


def test_a_model_that_does_not_fit_is_named(world: World, short: Callable[[bool], None]) -> None:
    source = world.engine.core.source("talker")
    assert source is not None
    world.engine.unload("talker")
    with pytest.raises(NotEnoughMemory, match="talker"):
        world.engine.load_source(source, progress=False)
    answer = post(world.client, BODIES[RESPONSES], RESPONSES)
    assert answer.json()["error"]["code"] == "not_enough_memory"
    short(False)
    assert post(world.client, BODIES[RESPONSES], RESPONSES).status_code == 200


def test_kv_goes_for_a_model_that_needs_its_place(world: World) -> None:
    """What nobody uses of the cache is given up before a load is refused."""
    core, store = world.engine.core, world.engine.core.store
    world.engine.session("talker", name="s").send("Hi")
    source = core.source("talker")
    assert source is not None and store.nbytes > 0
    weights = core.runtime("talker").info.bytes or 0
    pressure, held = core._life.pressure, store.nbytes
    pressure.available = lambda: pressure.reserve + weights - 1 + (held - store.nbytes)
    world.engine._make_room(source)
    assert store.nbytes < held
    assert core.names() == ["talker"]


@pytest.mark.parametrize("path", [RESPONSES, CHAT, MESSAGES])
def test_bad_logits_are_told_as_the_model_s_fault(
    world: World, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("mlxnb.mlxlm.is_number", lambda value: False)
        answer = post(world.client, BODIES[path], path)
    assert answer.status_code == 500
    assert "talker gave NaN or infinite logits" in json.dumps(answer.json())
    assert post(world.client, BODIES[path], path).status_code == 200
