"""What all routes have in common: credentials, ids, errors in the protocol's shape, limits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mlxnb.host.context import Limits
from mlxnb.host.server import Server
from mlxnb.link import proof
from mlxnb.link.client import Client
from mlxnb.link.proof import Identity

from .doubles import HandService
from .talk import ECHO, get, post, raw, streamed, wait_idle

OPENAI = {"message", "type", "code", "param"}


@pytest.fixture
def stranger(server: Server) -> Iterator[httpx2.Client]:
    """Somebody who found the socket and does not know the secret."""
    transport = httpx2.HTTPTransport(uds=server.record.socket)
    with httpx2.Client(transport=transport, base_url="http://mlxnb/mlxnb") as made:
        yield made


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("HEAD", "/v1"),
        ("GET", "/metrics"),
        ("POST", "/v1/echo"),
        ("GET", "/v1/echo"),
        ("GET", "/nothing"),
    ],
)
def test_nothing_is_open_without_a_signature(
    stranger: httpx2.Client, hand: HandService, method: str, path: str
) -> None:  # W4, W62
    answer = stranger.request(method, path, json={"text": "hi"} if method == "POST" else None)
    assert answer.status_code == 401
    assert hand.answers == []


def test_health_tells_strangers_its_status_alone(
    stranger: httpx2.Client, client: Client, hand: HandService
) -> None:  # W4, W49
    assert stranger.get("/health").json() == {"status": "ok"}
    assert get(client, "/mlxnb/health").json().keys() > {"status", "waiting"}
    hand.status = "error"
    assert stranger.get("/health").status_code == 503


def test_a_signature_is_good_for_its_request_alone(server: Server, stranger: httpx2.Client) -> None:
    headers = proof.sign(server.record.secret, "GET", "/mlxnb/metrics", proof.owner())
    assert stranger.get("/metrics", headers=headers).status_code == 200
    assert stranger.get("/v1", headers=headers).status_code == 401
    forged = headers | {proof.IDENTITY: headers[proof.IDENTITY].replace("jupyter", "key")}
    assert stranger.get("/metrics", headers=forged).status_code == 401


def test_answers_of_every_status_prove_the_host(client: Client) -> None:  # W63
    for path in ("/mlxnb/health", "/mlxnb/nothing", ECHO):
        get(client, path)  # the client checks the proof
    post(client, b"no json")


def test_the_caller_is_who_the_identity_names(client: Client, hand: HandService) -> None:
    with client.stream(
        "POST",
        ECHO,
        body=b'{"text": "hi", "stream": true}',
        identity=Identity("laptop", "key"),
    ) as answer:
        hand.next().end()
        answer.read()
    assert hand.callers == ["key:laptop"]


def test_every_answer_names_its_request(client: Client) -> None:  # W58
    for path in ("/mlxnb/health", "/mlxnb/nothing"):
        headers = get(client, path).headers
        assert headers["x-request-id"] == headers["request-id"] != ""
    assert (
        get(client, "/mlxnb").headers["request-id"] != get(client, "/mlxnb").headers["request-id"]
    )


def test_a_request_keeps_the_id_that_the_notebook_server_gave_it(client: Client) -> None:
    assert post(client, {}, **{"X-Request-Id": "req_7"}).headers["request-id"] == "req_7"
    odd = post(client, {}, **{"X-Request-Id": "a b"}).headers["request-id"]
    assert odd.startswith("req_")


@pytest.mark.parametrize("path", ["/mlxnb", "/mlxnb/", "/mlxnb/v1"])
def test_base_urls_answer_to_head(client: Client, path: str) -> None:  # W53
    answer = get(client, path, method="HEAD")
    assert answer.status_code == 200
    assert answer.content == b""


def test_an_unknown_path_is_a_json_404(client: Client) -> None:  # W2
    for path in ("/mlxnb/nothing", "/mlxnb/v1/echo/more", "/api/kernels", "/"):
        answer = get(client, path)
        assert answer.status_code == 404
        assert set(answer.json()["error"]) == OPENAI


def test_a_wrong_method_is_a_json_405_that_names_the_right_ones(client: Client) -> None:  # W2
    answer = get(client, ECHO, method="DELETE")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_errors_are_in_the_callers_shape(client: Client) -> None:  # W3
    with client.stream(
        "GET", "/mlxnb/nothing", headers={"anthropic-version": "2023-06-01"}
    ) as answer:
        answer.read()
    body = answer.json()
    assert body["type"] == "error"
    assert body["request_id"] == answer.headers["request-id"]


def test_a_body_beyond_the_limit_is_a_413(
    serve: Callable[..., Server], hand: HandService
) -> None:  # W58
    client = Client(serve(hand, limits=Limits(body_bytes=1000)).record)
    for size in (1001, 5000):
        answer = post(client, {"text": "x" * size})
        assert answer.status_code == 413
        assert answer.json()["error"]["type"] == "request_too_large"
    with client.stream("POST", ECHO, body=chunks(5000)) as answer:
        assert answer.status_code == 413
    assert hand.answers == []
    with streamed(client, {"text": "hi"}) as events:
        hand.next().end()
        assert list(events)[-1][0] == "end"
    client.close()


def chunks(size: int) -> Any:
    yield from (b"x" * 100 for _ in range(size // 100))


def test_malformed_bodies_are_400_and_the_next_request_is_served(
    client: Client, hand: HandService
) -> None:
    mangled = random.Random(7)
    for _ in range(100):
        body = bytearray(b'{"text": "hi", "more": [1, 2.5, null, {"a": "\\u00e4"}]}')
        for _ in range(mangled.randint(1, 4)):
            body[mangled.randrange(len(body))] = mangled.randrange(256)
        hand.refusal = None
        body += b"]"
        assert post(client, bytes(body)).status_code == 400
    with streamed(client, {"text": "hi"}) as events:
        hand.next().end()
        assert list(events)[-1][0] == "end"


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b'{"text": "\\ud800"}',
     b'{"a": ' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_what_is_no_json_object_is_a_400(client: Client, body: bytes) -> None:  # W5
    assert post(client, body).status_code == 400


def test_metrics_count_and_name_no_user(client: Client, hand: HandService) -> None:  # W65
    with streamed(client, {"text": "hi"}) as events:
        answer = hand.next()
        answer.say("one")
        assert [next(events)[0] for _ in range(2)] == ["open", "text"]
        answer.say("two")
        answer.end()
        list(events)
    post(client, {"text": 7})
    text = get(client, "/mlxnb/metrics").text
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["mlxnb_requests_total", "completed", "hand", "responses"] == 1
    assert samples["mlxnb_requests_total", "", "400", "responses"] == 1
    assert samples["mlxnb_tokens_total", "hand", "output", "responses"] == 2
    assert samples["mlxnb_inter_token_seconds_count", "hand", "responses"] == 1
    assert samples["mlxnb_model_loads_total",] == 2
    assert samples["mlxnb_cache_bytes",] == 7
    assert samples["mlxnb_in_flight_requests",] == 0
    assert proof.owner().name not in text or proof.owner().name in "mlxnb"


def test_a_server_that_stops_lets_running_answers_end(
    serve: Callable[..., Server], hand: HandService
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    server = serve(hand)
    client = Client(server.record)
    with streamed(client, {"text": "hi"}) as events, ThreadPoolExecutor() as pool:
        answer = hand.next()
        stopped = pool.submit(server.stop)
        answer.say("late")
        answer.end()
        assert [name for name, _ in events] == ["open", "text", "end"]
        stopped.result(30)
    client.close()


def test_a_server_that_stops_in_a_hurry_stops_the_engines_work(
    server: Server, hand: HandService
) -> None:
    connection = raw(server, {"text": "hi", "stream": True})
    answer = hand.next()
    server.stop(0.0)
    assert answer.cancelled.is_set()
    connection.close()


def test_nothing_is_left_of_a_server_that_stopped(server: Server, hand: HandService) -> None:
    from pathlib import Path

    from mlxnb.link.record import records

    assert [record.uuid for record in records()] == [server.record.uuid]
    assert server.record.socket is not None
    server.stop()
    server.stop()
    assert records() == []
    assert not Path(server.record.socket).exists()
    assert not server.serving
    wait_idle(server)
