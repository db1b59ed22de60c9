"""Clients that leave, engines that die, and what is left of many requests (C20, C22, C25, W43)."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from wire.checks import check_events, parse_sse

from mlxnb.link.async_client import AsyncClient

from .talk import JSON, get, post, raw, read_until, wait_idle, wait_until
from .test_protocols import MESSAGES, RESPONSES, ask_messages, ask_responses, say
from .world import World

__all__ = ["say"]
LONG = " ".join(f"word-{number}" for number in range(300))
IDLE_TASKS = 4
"""On the server's loop: its own, what counts them, and a connection that is kept."""
Say = Callable[..., World]


def body_of(path: str, stream: bool, **more: Any) -> dict[str, Any]:
    ask = ask_responses if path == RESPONSES else ask_messages
    return ask(stream=stream, **more)


def seen_to_leave(world: World, of: int = 1) -> None:
    """Wait until one ``of`` the requests that run or wait has been cancelled."""
    there = [request for lane in lanes(world) for request in lane._unfinished]
    assert len(there) == of
    wait_until(lambda: any(request.cancelled for request in there))


def lanes(world: World) -> list[Any]:
    return list(world.engine.core._life.lanes.values())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
@pytest.mark.parametrize("calls", [0, 5], ids=["prefill", "decode"])
def test_a_client_that_leaves_stops_the_engine_within_a_step(
    say: Say, path: str, stream: bool, calls: int
) -> None:
    world = say(LONG)
    with world.gate(calls) as gate:
        connection = raw(world.server, body_of(path, stream), path)
        gate.wait()
        connection.close()
        seen_to_leave(world)
        fed = world.model.fed
        gate.open()
        wait_idle(world.server)
    assert world.model.fed - fed <= 64  # the chunk or the token that it stood before, no more
    assert world.engine.ledger.last().finish_reason == "cancelled"


def test_a_client_that_leaves_the_queue_is_never_computed(say: Say) -> None:
    world = say("Hello.")
    with world.gate() as gate, ThreadPoolExecutor() as pool:
        first = pool.submit(post, world.client, ask_responses(), RESPONSES)
        gate.wait()
        waiting = raw(world.server, body_of(RESPONSES, True, input="Another."), RESPONSES)
        read_until(waiting, b"response.created")
        waiting.close()
        seen_to_leave(world, of=2)
        gate.open()
        assert first.result().status_code == 200
    rows = world.engine.ledger.rows()
    assert [row.finish_reason for row in rows] == ["stop", "cancelled"]
    assert rows[1].usage.output_tokens == 0


def test_a_client_that_leaves_during_a_load_is_no_error(say: Say) -> None:
    world = say("Hello.")
    world.engine.unload("talker")
    connection = raw(world.server, body_of(RESPONSES, True), RESPONSES)
    read_until(connection, b"response.created")
    connection.close()
    wait_idle(world.server)
    assert post(world.client, ask_responses(), RESPONSES).status_code == 200


def test_what_was_computed_for_one_who_left_is_reused(say: Say) -> None:  # C23
    world = say(LONG)
    with world.gate(5) as gate:
        connection = raw(world.server, body_of(RESPONSES, True), RESPONSES)
        gate.wait()
        connection.close()
        seen_to_leave(world)
        gate.open()
        wait_idle(world.server)
    answer = post(world.client, ask_responses(max_output_tokens=2), RESPONSES)
    assert int(answer.headers["x-cached-tokens"]) > 16


def test_those_who_stay_get_what_they_would_get_alone(say: Say) -> None:
    world = say(" ".join(f"word-{number}" for number in range(20)))
    alone = post(world.client, ask_responses(), RESPONSES).json()["output"][0]["content"]
    asyncio.run(sixteen_of_whom_four_leave(world, alone[0]["text"]))
    wait_idle(world.server)
    assert pins(world) == 0


async def sixteen_of_whom_four_leave(world: World, expected: str) -> None:
    client = AsyncClient(world.server.record)
    try:
        kept = await asyncio.gather(*(one_of_sixteen(client, number) for number in range(16)))
    finally:
        await client.close()
    assert [text is None for text in kept] == [number % 4 == 0 for number in range(16)]
    assert {text for text in kept if text is not None} == {expected}


async def one_of_sixteen(client: AsyncClient, number: int) -> str | None:
    """The text that a client gets; None: it has left."""
    body = ask_responses(stream=True, input=f"Count, please. {number}")
    content = httpx2.Request("POST", "http://x", json=body).content
    async with client.stream("POST", RESPONSES, body=content, headers=JSON) as answer:
        assert answer.status == 200
        got = b""
        async for chunk in answer.content.iter_any():
            got += chunk
            if number % 4 == 0 and got.count(b"output_text.delta") > 5:
                return None
    response = check_events(parse_sse(got))
    text: str = response["output"][0]["content"][0]["text"]
    return text


def pins(world: World) -> int:
    """Blocks and hot caches that something relies on."""
    return int(world.engine.prefix_cache()["refs"].sum())


# --- the engine -------------------------------------------------------------------------------


@pytest.fixture
def nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's death is noticed by the next request, not before."""
    monkeypatch.setattr("mlxnb.sessions.serving.service.CHECK_S", 3600.0)


def kill(world: World) -> None:
    def die() -> None:
        raise SystemExit("on purpose")

    thread = world.engine.core.owner._thread
    with pytest.raises(Exception, match="thread"):
        world.engine.core.owner.call(die)
    thread.join(30)


def test_a_dead_engine_is_told_and_the_next_request_is_served(
    say: Say, nobody_watches: None
) -> None:  # C20, W49
    world = say("Hello.")
    assert get(world.client, "/mlxnb/health").json()["status"] == "ok"
    kill(world)
    health = get(world.client, "/mlxnb/health")
    assert (health.status_code, health.json()["status"]) == (503, "error")
    assert post(world.client, ask_responses(), RESPONSES).status_code == 200
    assert get(world.client, "/mlxnb/health").status_code == 200


def test_a_stream_whose_engine_dies_ends_in_its_error(say: Say) -> None:  # W49
    world = say(LONG)

    def die() -> None:
        if world.model.fed > 100:
            raise SystemExit("on purpose")

    world.model.on_call = die
    answer = post(world.client, ask_responses(stream=True), RESPONSES)
    names = [name for name, _ in parse_sse(answer.content)]
    assert names[-2:] == ["error", "response.failed"]
    check_events(parse_sse(answer.content))


# --- leaks ------------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def tasks(world: World) -> int:
    """Tasks on the server's loop."""

    async def count() -> int:
        return len(asyncio.all_tasks())

    return asyncio.run_coroutine_threadsafe(count(), world.server._loop).result(30)


def threads() -> int:
    """Threads, without those of the pool, which stay for the next request."""
    return sum(not thread.name.startswith("mlxnb-host_") for thread in threading.enumerate())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of descriptors")
def test_nothing_is_left_of_many_requests(say: Say) -> None:
    world = say("Hello.", "Again.")
    some_requests(world)
    wait_until(lambda: tasks(world) <= IDLE_TASKS)
    before = descriptors(), threads()
    for _ in range(10):
        some_requests(world)
    wait_until(lambda: tasks(world) <= IDLE_TASKS)
    gc.collect()
    with suppress(AssertionError):  # the thread of a cancelled timer is there until it has noticed
        wait_until(lambda: (descriptors(), threads()) <= before)
    assert (descriptors(), threads()) <= before
    wait_until(lambda: pins(world) == 0)  # the engine may still be at the end of a cancelled one


def some_requests(world: World) -> None:
    """Good ones, bad ones, and some that leave."""
    for path in (RESPONSES, MESSAGES):
        assert post(world.client, body_of(path, True), path).status_code == 200
        assert post(world.client, body_of(path, False), path).status_code == 200
        assert post(world.client, {}, path).status_code == 400
        for stream in (True, False):
            raw(world.server, body_of(path, stream), path).close()
    wait_idle(world.server)
