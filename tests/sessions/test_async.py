"""The twins for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from scripted import Gate, model_of

from mlxnb.errors import InvalidOption, RequestFailed
from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.local_session import LocalSession
from mlxnb.sessions.session import Session

Say = Callable[..., str]


async def freed(session: Session) -> None:
    """Wait until the session has ended its turn."""
    while session.answering:
        await asyncio.sleep(0.01)


def test_asend_is_send(engine: LocalEngine, say: Say) -> None:
    say("one", "two")
    session = engine.session()
    turn = asyncio.run(session.asend("hi", max_tokens=100))
    assert turn.text == "one"
    assert session.last is turn
    assert session.send("more").text == "two"


def test_astream_is_stream(engine: LocalEngine, say: Say) -> None:
    say("one two \U0001f600 three")

    async def collect() -> list[object]:
        return [piece async for piece in engine.session().astream("hi")]

    *pieces, turn = asyncio.run(collect())
    assert isinstance(turn, Turn)
    assert "".join(map(str, pieces)) == turn.text == "one two \U0001f600 three"
    assert len(pieces) > 3


def test_the_loop_goes_on_while_an_answer_is_made(engine: LocalEngine, say: Say) -> None:
    name = say("one")

    async def run() -> Turn:
        with Gate(model_of(engine, name)) as gate:
            task = asyncio.create_task(engine.session().asend("hi"))
            await asyncio.to_thread(gate.wait)
            for _ in range(5):
                await asyncio.sleep(0)
            assert not task.done()
        return await task

    assert asyncio.run(run()).text == "one"


def test_many_answers_at_once_need_no_thread_of_the_pool(
    engine: LocalEngine, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("one")
    monkeypatch.delattr(asyncio.BaseEventLoop, "run_in_executor")

    async def run() -> list[Turn]:
        return await asyncio.gather(*(engine.session().asend("hi") for _ in range(12)))

    assert [turn.text for turn in asyncio.run(run())] == ["one"] * 12


def test_a_cancelled_task_stops_the_answer(engine: LocalEngine, say: Say) -> None:
    name = say("word " * 500)
    session = engine.session()

    async def run() -> None:
        with Gate(model_of(engine, name), calls=5) as gate:
            task = asyncio.create_task(session.asend("hi"))
            await asyncio.to_thread(gate.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await freed(session)

    asyncio.run(run())
    assert session.last is not None
    assert session.last.finish_reason == "cancelled"
    assert session.last.text
    assert session.turns == 0


def test_a_task_cancelled_before_the_answer_began_stops_it_too(
    engine: LocalEngine, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("word " * 500)
    session = engine.session()
    going, free = threading.Event(), threading.Event()
    reply = LocalSession.reply

    def slow(*given: object, **more: object) -> object:
        going.set()
        assert free.wait(60)
        return reply(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalSession, "reply", slow)

    async def run() -> None:
        task = asyncio.create_task(session.asend("hi"))
        await asyncio.to_thread(going.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        free.set()
        while session.last is None:
            await asyncio.sleep(0.01)

    asyncio.run(run())
    assert session.last is not None
    assert session.last.finish_reason == "cancelled"


def test_a_stream_that_is_left_stops_the_answer(engine: LocalEngine, say: Say) -> None:
    say("word " * 500)
    session = engine.session()

    async def run() -> None:
        pieces = session.astream("hi")
        async for _ in pieces:
            break
        await pieces.aclose()  # type: ignore[attr-defined]
        await freed(session)

    asyncio.run(run())
    assert session.last is not None
    assert session.last.finish_reason == "cancelled"


def test_a_stream_that_nobody_asks_never_starts(engine: LocalEngine, say: Say) -> None:
    say("one")
    session = engine.session()

    async def run() -> None:
        session.astream("hi")

    asyncio.run(run())
    assert len(engine.turns()) == 0
    assert not session.answering


def test_mistakes_and_failures_are_raised_where_they_are_awaited(
    engine: LocalEngine, say: Say
) -> None:
    name = say("one")
    session = engine.session()
    with pytest.raises(InvalidOption, match="temperature"):
        asyncio.run(session.asend("hi", temperature=-1))
    model_of(engine, name).on_call = lambda: 1 // 0
    with pytest.raises(RequestFailed, match="ZeroDivisionError"):
        asyncio.run(session.asend("hi"))


def test_no_thread_is_left_over(engine: LocalEngine, say: Say) -> None:
    say("one")
    asyncio.run(engine.session().asend("hi"))
    for thread in threading.enumerate():
        if thread.name == "mlxnb-follow":
            thread.join(10)
            assert not thread.is_alive()
