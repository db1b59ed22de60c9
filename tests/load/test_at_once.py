"""Sixteen clients of the demo model at once, four of which vanish in the midst of their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from host.talk import JSON, wait_idle
from host.world import World
from parity.settled import assert_settled, held
from wire.checks import check_events, parse_sse

from mlxnb.link.async_client import AsyncClient
from mlxnb.models.resolve import resolve

RESPONSES = "/mlxnb/v1/responses"
THINGS = [
    "rivers",
    "bridges",
    "clocks",
    "herons",
    "trains",
    "islands",
    "lamps",
    "violins",
    "bakers",
    "storms",
    "maps",
    "gardens",
    "kites",
    "wells",
    "towers",
    "ships",
]
TOKENS, HEARD = 16, 5
"""Tokens of an answer, and deltas after which a client vanishes."""


@pytest.fixture
def world(demo_path: object) -> Iterator[World]:
    world = World([resolve("demo")])
    world.engine.budget = 512 * 2**20
    yield world
    world.close()


async def ask(client: AsyncClient, number: int, vanishes: bool = False) -> str | None:
    """The id of a whole answer; None: the client has vanished."""
    body = {
        "model": "demo",
        "input": f"Tell me something about {THINGS[number]}.",
        "max_output_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
    }
    content = json.dumps(body).encode()
    async with client.stream("POST", RESPONSES, body=content, headers=JSON) as answer:
        assert answer.status == 200
        got = b""
        async for chunk in answer.content.iter_any():
            got += chunk
            if vanishes and got.count(b"event: response.output_text.delta") >= HEARD:
                return None
    return str(check_events(parse_sse(got))["id"])


async def alone(world: World, numbers: list[int]) -> list[str | None]:
    client = AsyncClient(world.server.record)
    answers = [await ask(client, number) for number in numbers]
    await client.close()
    return answers


async def together(world: World) -> list[str | None]:
    client = AsyncClient(world.server.record)
    with held(world.engine):
        asked = [asyncio.create_task(ask(client, n, vanishes=n % 4 == 0)) for n in range(16)]
        while world.server.in_flight < 16:
            await asyncio.sleep(0.01)
    answers = await asyncio.gather(*asked)
    await client.close()
    return answers


def tokens(world: World, response_id: str | None) -> list[int]:
    (row,) = (row for row in world.engine.ledger if row.session == response_id)
    return list(row.output)


def test_who_stays_gets_the_tokens_of_a_run_alone(world: World) -> None:  # W43
    answers = asyncio.run(together(world))
    wait_idle(world.server)
    stayed = [number for number in range(16) if answers[number] is not None]
    assert stayed == [number for number in range(16) if number % 4]
    rows = world.engine.ledger.rows()
    assert [row.finish_reason for row in rows].count("cancelled") == 4
    assert all(row.usage.output_tokens < TOKENS for row in rows if row.finish_reason == "cancelled")
    assert_settled(world.engine)
    for number, solo in zip(stayed, asyncio.run(alone(world, stayed)), strict=True):
        assert tokens(world, answers[number]) == tokens(world, solo), THINGS[number]
