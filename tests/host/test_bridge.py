"""Events that cross from the engine's thread to a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from mlxnb.engine.events import Piece
from mlxnb.host.bridge import Bridge


def on_a_loop(test: Callable[[Bridge, asyncio.AbstractEventLoop], Awaitable[None]]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        bridge = Bridge(loop)
        await asyncio.wait_for(test(bridge, loop), 30)
        bridge.close()

    asyncio.run(main())


def piece(text: str) -> Piece:
    return Piece("text", text)


def test_what_has_come_is_taken_together() -> None:
    async def test(bridge: Bridge, loop: asyncio.AbstractEventLoop) -> None:
        bridge.hand(piece("a"))
        bridge.hand(piece("b"))
        assert await bridge.take() == [piece("a"), piece("b")]

    on_a_loop(test)


def test_what_comes_from_another_thread_wakes_the_taker() -> None:
    async def test(bridge: Bridge, loop: asyncio.AbstractEventLoop) -> None:
        for text in "abc":
            threading.Timer(0.01, bridge.hand, [piece(text)]).start()
            assert await bridge.take(loop.time() + 20) == [piece(text)]

    on_a_loop(test)


def test_a_deadline_ends_the_wait() -> None:
    async def test(bridge: Bridge, loop: asyncio.AbstractEventLoop) -> None:
        deadline = loop.time() + 0.02
        assert await bridge.take(deadline) == []
        assert loop.time() >= deadline

    on_a_loop(test)


def test_a_later_deadline_is_kept_though_the_alarm_was_set_for_an_earlier_one() -> None:
    async def test(bridge: Bridge, loop: asyncio.AbstractEventLoop) -> None:
        bridge.hand(piece("a"))
        asyncio.get_running_loop().call_later(0.001, bridge.hand, piece("b"))
        await bridge.take(loop.time() + 0.02)
        await bridge.take(loop.time() + 0.02)
        deadline = loop.time() + 0.05
        assert await bridge.take(deadline) == []
        assert loop.time() >= deadline

    on_a_loop(test)


def test_an_earlier_deadline_is_kept_though_the_alarm_was_set_for_a_later_one() -> None:
    async def test(bridge: Bridge, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(0.001, bridge.hand, piece("a"))
        assert await bridge.take(loop.time() + 3600) == [piece("a")]
        assert await bridge.take(loop.time() + 0.01) == []

    on_a_loop(test)


def test_giving_to_a_loop_that_is_closed_is_no_error() -> None:
    loop = asyncio.new_event_loop()
    bridge = Bridge(loop)
    loop.close()
    bridge.hand(piece("a"))
