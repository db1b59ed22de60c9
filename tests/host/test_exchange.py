"""One answer on its way to its client: order, keep-alives, failures, clients that leave."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mlxnb.errors import EngineDied, ModelUnloaded
from mlxnb.host.context import Limits
from mlxnb.host.server import Server
from mlxnb.link.client import Client

from .doubles import HandService
from .talk import post, raw, read_until, streamed, wait_idle


def test_the_first_events_go_out_before_anything_is_computed(
    client: Client, hand: HandService
) -> None:  # W29
    with streamed(client, {"text": "hi"}) as events:
        assert next(events) == ("open", {})
        answer = hand.next()
        answer.say("one")
        assert next(events) == ("text", {"text": "one"})
        answer.end()
        assert list(events) == [("end", {"reason": "stop"})]


def test_a_plain_answer_is_one_body(client: Client, hand: HandService) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, client, {"text": "hi"})
        answer = hand.next()
        answer.say("one ")
        answer.say("two")
        answer.end()
        assert waiting.result().json() == {"text": "one two"}


def test_silence_is_broken_by_events(
    serve: Callable[..., Server], hand: HandService
) -> None:  # W33, C24, C50
    client = Client(serve(hand, limits=Limits(keep_alive_s=0.01)).record)
    with streamed(client, {"text": "hi"}) as events:
        assert next(events)[0] == "open"
        assert [next(events)[0] for _ in range(3)] == ["quiet"] * 3
        hand.next().end()
        assert [name for name, _ in events if name != "quiet"] == ["end"]
    client.close()


def test_an_error_before_headers_is_json_with_its_status(
    client: Client, hand: HandService
) -> None:  # W42
    hand.refusal = EngineDied("gone")
    answer = post(client, {"text": "hi", "stream": True})
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "engine_died"


def test_an_error_of_a_plain_answer_is_json_with_its_status(
    client: Client, hand: HandService
) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(post, client, {"text": "hi"})
        hand.next().end("error", ModelUnloaded("it was unloaded"))
        assert waiting.result().status_code == 409
    assert hand.filed == []


def test_an_error_on_a_stream_is_its_only_terminal(
    client: Client, hand: HandService
) -> None:  # W41
    with streamed(client, {"text": "hi"}) as events:
        hand.next().end("error", ModelUnloaded("it was unloaded"))
        assert list(events) == [("open", {}), ("failed", {"kind": "ModelUnloaded"})]
    assert hand.filed == []


def test_an_answer_that_was_cancelled_elsewhere_has_failed(
    client: Client, hand: HandService
) -> None:
    with streamed(client, {"text": "hi"}) as events:
        hand.next().cancel()
        assert [name for name, _ in events] == ["open", "failed"]
    assert hand.filed == []


def test_a_fault_of_the_machine_ends_the_stream_and_the_engines_work(
    client: Client, hand: HandService, caplog: pytest.LogCaptureFixture
) -> None:  # W42, W44
    with streamed(client, {"text": "hi"}) as events:
        answer = hand.next()
        answer.say("break")
        assert list(events)[-1] == ("failed", {"kind": "KeyError"})
    assert answer.cancelled.wait(30)
    assert "KeyError" in caplog.text
    assert "secret words" not in caplog.text


def test_an_answer_is_filed_before_its_terminal(client: Client, hand: HandService) -> None:  # W23
    may_file = threading.Event()
    hand.on_file = lambda: assert_(may_file.wait(30))
    with streamed(client, {"text": "hi"}) as events:
        answer = hand.next()
        answer.say("one")
        answer.end()
        assert [next(events)[0] for _ in range(2)] == ["open", "text"]
        may_file.set()
        assert next(events)[0] == "end"
        assert hand.filed == [{"text": "one"}]


def test_an_answer_is_told_though_the_store_fails(
    client: Client, hand: HandService, caplog: pytest.LogCaptureFixture
) -> None:  # C21
    hand.on_file = lambda: assert_(False)
    with streamed(client, {"text": "hi"}) as events:
        hand.next().end()
        assert list(events)[-1][0] == "end"
    assert "filing failed" in caplog.text


def test_a_row_whose_terminal_was_not_delivered_is_taken_back(
    client: Client, hand: HandService, server: Server
) -> None:  # W23
    filing, left = threading.Event(), threading.Event()
    hand.on_file = lambda: (filing.set(), assert_(left.wait(30)))
    with streamed(client, {"text": "hi"}) as events:
        next(events)
        answer = hand.next()
        answer.end()
        assert filing.wait(30)
    assert answer.cancelled.wait(30)  # the host has seen that the client is gone
    left.set()
    wait_idle(server)
    assert hand.filed == []


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_stops_the_engines_work(
    hand: HandService, server: Server, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:  # W43, C22, C25
    connection = raw(server, {"text": "hi", "stream": stream})
    answer = hand.next()
    assert answer.followed.wait(30)
    assert not answer.cancelled.is_set()
    connection.close()
    assert answer.cancelled.wait(30)
    wait_idle(server)
    assert hand.filed == []
    assert "client_abort, model hand" in caplog.text


def test_a_client_that_leaves_before_its_answer_has_begun_stops_it(
    hand: HandService, server: Server
) -> None:  # W43: while the prompt is rendered, or waits for the store
    may_begin = threading.Event()
    hand.on_begin = lambda: assert_(may_begin.wait(30))
    connection = raw(server, {"text": "hi"})
    assert hand.beginning.wait(30)
    connection.close()
    may_begin.set()
    assert hand.next().cancelled.wait(30)
    wait_idle(server)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_stops_reading_is_given_up(
    hand: HandService, serve: Callable[..., Server], stream: bool
) -> None:
    server = serve(hand, limits=Limits(write_timeout_s=0.2))
    with raw(server, {"text": "hi", "stream": stream}):
        answer = hand.next()
        answer.say("x" * 4_000_000)  # more than the system takes
        if not stream:
            answer.end()
        assert not stream or answer.cancelled.wait(30)
        wait_idle(server)
    assert hand.filed == []


def test_a_client_that_reads_slowly_is_waited_for(
    hand: HandService, serve: Callable[..., Server]
) -> None:
    server = serve(hand, limits=Limits(write_timeout_s=4.0))
    with raw(server, {"text": "hi", "stream": True}) as connection:
        answer = hand.next()
        for _ in range(5):  # 5 s in all, and each is taken in time
            answer.say("x" * 600_000)
            time.sleep(1.0)
            read_until(connection, b"\n\n")
        assert not answer.cancelled.is_set()
        answer.end()
        read_until(connection, b"event: end")
    wait_idle(server)
    assert len(hand.filed) == 1


def assert_(fact: bool) -> None:
    assert fact
