"""W43, W58, C25, C44, C48: a request's way to a host and back, with real processes at both ends."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import httpx2
import pytest
from link.fake_host import Fake, fake_host, until

from jupyter.server import BASE_URL, Server, notebook_server
from mlxnb.jupyter.passage import TOUCH_S

SSE = ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"]


def asks(model: str = "demo", **fake: Any) -> dict[str, Any]:
    return {"model": model, "fake": fake}


@pytest.fixture
def victim() -> Iterator[Fake]:
    """A host of its own model, to be killed."""
    with fake_host(models="victim") as fake:
        yield fake


# --- byte for byte ------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/event-stream", None])
@pytest.mark.parametrize("encoding", ["gzip, deflate", None])
def test_c44_each_event_arrives_before_the_next_is_made(
    server: Server, host: Fake, accept: str | None, encoding: str | None
) -> None:
    headers = server.bearer | {"Accept": accept or "", "Accept-Encoding": encoding or ""}
    url, body = f"{server.base}/v1/responses", asks(events=SSE, step=True)
    with httpx2.stream("POST", url, json=body, headers=headers, timeout=60) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "content-encoding" not in answer.headers
        chunks = answer.iter_raw()
        for event in SSE:
            assert next(chunks) == event.encode()
            host.go()
        assert list(chunks) == []


def test_w29_headers_arrive_before_the_first_event(server: Server, host: Fake) -> None:
    body = asks(events=["data: 1\n\n"], wait=False, headers={"X-Session-Cache": "hit"}, step=True)
    with server.stream("/v1/responses", body) as answer:
        assert answer.headers["x-session-cache"] == "hit"
        host.go()


def test_the_body_and_the_path_reach_the_host_as_they_were_sent(server: Server, host: Fake) -> None:
    raw = '{ "model":"demo", "ü\\u00e9": 1.0,\n"x":[]}'.encode()
    path = "/v1/a%20b/%C3%A9?beta=true&a=1&a=2&empty="
    saw = server.ask("POST", path, content=raw).json()
    assert saw["body"].encode() == raw
    assert saw["uri"] == f"/mlxnb{path}"


@pytest.mark.parametrize("status", [200, 400, 404, 409, 429, 500, 503])
def test_a_hosts_status_headers_and_body_reach_the_client(
    server: Server, host: Fake, status: int
) -> None:
    headers = {"Retry-After": "1", "X-Cached-Tokens": "7", "X-Session-Cache": "prefix_hit"}
    answer = server.post("/v1/messages", asks(status=status, body={"a": "é"}, headers=headers))
    assert (answer.status_code, answer.json()) == (status, {"a": "é"})
    assert {name: answer.headers[name] for name in headers} == headers


def test_a_405_says_what_is_allowed(server: Server, host: Fake) -> None:
    answer = server.post("/v1/messages", asks(status=405, headers={"Allow": "GET"}))
    assert answer.headers["allow"] == "GET"


def test_an_answer_of_a_mebibyte_is_whole(server: Server, host: Fake) -> None:
    body = {"text": "é" * 2**20}
    fake = {"model": "demo", "fake": {"body": {"text": "x"}}}
    assert server.post("/v1/messages", fake).json() == {"text": "x"}
    with fake_host(models="large") as other:
        del other
        events = [f"data: {body['text'][:1000]}\n\n"] * 100
        with server.stream("/v1/messages", asks("large", events=events)) as answer:
            assert answer.read().decode() == "".join(events)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_w53_the_base_urls_answer_to_head(server: Server, host: Fake, path: str) -> None:
    for headers in (server.bearer, {"x-api-key": server.key}, server.jupyter):
        answer = server.ask("HEAD", path, headers=headers)
        assert answer.status_code == 200 and answer.content == b""
    assert server.ask("GET", path).json()["object"] == "mlxnb"
    assert host.seen["requests"] == []


# --- ids and limits -----------------------------------------------------------------------------


def test_w58_every_answer_has_an_id_that_the_host_knows(server: Server, host: Fake) -> None:
    answers = [
        server.post("/v1/responses", asks()),
        server.ask("GET", "/v1/models"),
        server.post("/v1/messages", asks(status=400, body={})),
        server.post("/v1/messages", {}, headers={}),
        server.ask("POST", "/v1/messages", content=b"{"),
        server.ask("HEAD", ""),
        server.ask("GET", "/health"),
    ]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert ids == [answer.headers["request-id"] for answer in answers]
    assert len(set(ids)) == len(ids) and all(one.startswith("req_") for one in ids)
    saw = [one["headers"]["X-Request-Id"] for one in host.seen["requests"]]
    assert saw == ids[:3]


def test_w58_a_body_over_the_limit_is_413_and_the_connection_lives_on(
    server: Server, host: Fake
) -> None:
    for path in ("/v1/responses", "/v1/messages"):
        answer = server.ask("POST", path, content=b" " * 300_000)
        assert answer.status_code == 413
        assert answer.json()["error"]["type"] == "request_too_large"
        chunked = server.ask("POST", path, content=iter([b" " * 100_000] * 3))
        assert chunked.status_code == 413
    assert host.seen["requests"] == []
    assert server.post("/v1/responses", asks()).status_code == 200


def test_a_stranger_with_a_large_body_hears_401(server: Server) -> None:
    answer = server.ask("POST", "/v1/responses", headers={}, content=b" " * 3_000_000)
    assert answer.status_code == 401


@pytest.mark.parametrize("raw", [b"{", b"[]", b"null", b'"a"', b"\xff", b"[" * 100_000])
def test_w5_what_is_no_json_object_is_400_without_a_host(
    server: Server, host: Fake, raw: bytes
) -> None:
    answer = server.ask("POST", "/v1/messages", content=raw)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert host.seen["requests"] == []


# --- the client goes away -----------------------------------------------------------------------


def send(server: Server, body: dict[str, Any], *, whole: bool = True) -> socket.socket:
    """A request on a socket of its own, to be closed at will."""
    address = urlparse(server.root)
    raw = json.dumps(body).encode()
    head = (
        f"POST {BASE_URL}mlxnb/v1/responses HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {server.key}\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    connection = socket.create_connection((str(address.hostname), int(address.port or 0)))
    connection.sendall(head.encode() + (raw if whole else raw[:-1]))
    return connection


def test_w43_a_client_that_leaves_before_headers_stops_the_host(server: Server, host: Fake) -> None:
    connection = send(server, asks(wait=True))
    host.wait_for_request()
    assert host.seen["gone"] == 0
    connection.close()
    host.wait_for_gone()


def test_c25_a_client_that_leaves_a_stream_stops_the_host(server: Server, host: Fake) -> None:
    connection = send(server, asks(events=SSE, step=True))
    while b"data: 1" not in connection.recv(65536):
        pass
    assert host.seen["gone"] == 0
    connection.close()
    host.wait_for_gone()


def test_w43_a_client_that_leaves_while_it_sends_reaches_no_host(
    server: Server, host: Fake
) -> None:
    send(server, asks(), whole=False).close()
    assert server.post("/v1/responses", asks()).status_code == 200
    assert len(host.seen["requests"]) == 1


def test_a_client_that_stops_reading_is_given_up(tmp_path: Path, host: Fake) -> None:
    with notebook_server(tmp_path / "hasty", start_host=False, write_timeout_s=0.2) as server:
        with send(server, asks(events=["data: " + "x" * 20_000_000 + "\n\n"])):
            host.wait_for_gone()
        assert server.ask("GET", "/health").status_code == 200
        assert "Traceback" not in server.log


def test_c25_leaving_costs_others_nothing(server: Server, host: Fake) -> None:
    with server.stream("/v1/responses", asks(events=SSE, step=True)) as answer:
        chunks = answer.iter_raw()
        assert next(chunks) == SSE[0].encode()
        other = send(server, asks(wait=True))
        host.wait_for_request(2)
        other.close()
        host.wait_for_gone()
        for _ in SSE:
            host.go()
        assert b"".join(chunks).decode() == SSE[1] + SSE[2]


# --- the host goes away -------------------------------------------------------------------------

CREATED = {
    "type": "response.created",
    "sequence_number": 0,
    "response": {"id": "resp_abcdefgh_1", "status": "in_progress", "output": [], "error": None},
}
DELTA = {"type": "response.output_text.delta", "sequence_number": 7, "delta": "a"}


def events_of(raw: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for event in raw.removesuffix("\n\n").split("\n\n"):
        name, data = event.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def broken(server: Server, path: str, events: list[Any]) -> str:
    with server.stream(path, asks("victim", events=events, die="then")) as answer:
        return answer.read().decode()


def test_w57_a_lost_host_ends_a_responses_stream_with_error_and_failed(
    server: Server, victim: Fake
) -> None:
    events = [["response.created", CREATED], ["response.output_text.delta", DELTA]]
    told = events_of(broken(server, "/v1/responses", events))
    assert [name for name, _ in told[2:]] == ["error", "response.failed"]
    error, failed = told[2][1], told[3][1]
    assert (error["sequence_number"], failed["sequence_number"]) == (8, 9)
    assert error["message"] == error["error"]["message"] == failed["response"]["error"]["message"]
    assert "%mlx_load" in error["message"]
    assert (failed["response"]["id"], failed["response"]["status"]) == ("resp_abcdefgh_1", "failed")


@pytest.mark.parametrize("is_open", [True, False])
def test_w41_a_lost_host_ends_a_messages_stream_with_error(
    server: Server, victim: Fake, is_open: bool
) -> None:
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    events: list[Any] = [["message_start", {"type": "message_start", "message": {}}]]
    events.append(["content_block_start", start])
    if not is_open:
        stop = {"type": "content_block_stop", "index": 0}
        events.append(["content_block_stop", stop])
    told = events_of(broken(server, "/v1/messages", events))[len(events) :]
    assert [name for name, _ in told] == ["content_block_stop"] * is_open + ["error"]
    assert told[-1][1]["error"]["type"] == "overloaded_error"


def test_a_lost_host_ends_a_completions_stream_with_an_error(server: Server, victim: Fake) -> None:
    told = broken(server, "/v1/chat/completions", ['data: {"choices":[]}\n\n'])
    assert "error" in json.loads(told.split("\n\n")[1].removeprefix("data: "))


def test_a_host_lost_after_the_last_event_is_no_error(server: Server, victim: Fake) -> None:
    done = {"type": "message_stop"}
    told = events_of(broken(server, "/v1/messages", [["message_stop", done]]))
    assert told == [("message_stop", done)]


def test_w42_a_host_lost_within_an_event_destroys_the_connection(
    server: Server, victim: Fake
) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        broken(server, "/v1/messages", ["event: message_start\nda"])


def test_w42_a_host_lost_before_headers_is_503(server: Server, victim: Fake) -> None:
    answer = server.post("/v1/messages", asks("victim", die="at once"))
    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "overloaded_error"
    assert "%mlx_load" in answer.json()["error"]["message"]


def test_c48_another_host_answers_for_one_that_was_killed(
    server: Server, host: Fake, victim: Fake, state: Path
) -> None:
    with fake_host(models="victim") as second:
        assert server.post("/v1/responses", asks("victim")).status_code == 200
        victim.kill()
        for _ in range(3):
            saw = server.post("/v1/responses", asks("victim")).json()
            assert saw["host"] == second.record.id
        assert not (state / "hosts" / f"{victim.record.uuid}.json").exists()


def test_c48_no_host_is_503_with_the_remedy(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jupyter.server import notebook_server

    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    with notebook_server(tmp_path / "s", start_host=False) as server:
        for path in ("/v1/responses", "/v1/messages"):
            answer = server.post(path, asks())
            assert answer.status_code == 503
            assert "%mlx_serve" in answer.json()["error"]["message"]
        assert server.ask("GET", "/health").json()["status"] == "ok"


# --- the notebook server stops ------------------------------------------------------------------


def test_a_server_that_stops_ends_its_streams_with_an_error(tmp_path: Path, host: Fake) -> None:
    """A proxy before it may leave a client waiting whose answer only breaks off."""
    events = [["message_start", {"type": "message_start", "message": {}}], ["ping", {}]]
    with (
        notebook_server(tmp_path / "stopping", start_host=False) as server,
        server.stream("/v1/messages", asks(events=events, step=True)) as answer,
    ):
        chunks = answer.iter_raw()
        assert events_of(next(chunks).decode())[0][0] == "message_start"
        server.process.terminate()
        ((name, told),) = events_of(b"".join(chunks).decode())  # which ends, and is not cut off
        assert (name, told["error"]["type"]) == ("error", "overloaded_error")
        assert told["error"]["message"] == "the notebook server is stopping"
        host.wait_for_gone()
        assert "Traceback" not in server.log


def test_a_server_that_stops_before_an_answer_has_begun_is_503(tmp_path: Path, host: Fake) -> None:
    with (
        notebook_server(tmp_path / "stopping", start_host=False) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(server.post, "/v1/responses", asks(wait=True))
        host.wait_for_request()
        server.process.terminate()
        answer = asked.result(30)
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == "the notebook server is stopping"
        host.wait_for_gone()


# --- health, activity, versions -----------------------------------------------------------------


def test_w49_health_is_the_hosts_health(server: Server, host: Fake) -> None:
    with fake_host(models="x", status="error", title="sick.ipynb"):
        answer = server.ask("GET", "/health")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        sick = next(one for one in answer.json()["hosts"] if one["title"] == "sick.ipynb")
        assert sick["status"] == "error"


def test_metrics_are_those_of_all_hosts_each_family_told_once(server: Server, host: Fake) -> None:
    from prometheus_client.parser import text_string_to_metric_families as families

    with fake_host(models="second") as second:
        answer = server.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    told = {family.name: family for family in families(answer.text)}
    assert set(told) == {"turns", "queue"}
    assert answer.text.count("# TYPE turns_total counter") == 1
    values = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in told.values()
        for sample in family.samples
    }
    for one in (host.record.id, second.record.id):
        assert values["turns_total", ("host", one)] == 3
        assert values["turns_total", ("host", one), ("le", "+Inf"), ("model", "a{b}")] == 1
        assert values["queue", ("host", one)] == 0


def test_models_are_those_of_all_hosts(server: Server, host: Fake) -> None:
    with fake_host(models="second"):
        listed = server.ask("GET", "/v1/models").json()
        assert listed["object"] == "list"
        assert {one["id"]: one["loaded"] for one in listed["data"]} == {
            "demo": True,
            "second": True,
            "disk": False,
        }
        about = server.ask("GET", "/v1/models/demo").json()
        assert about["host"] == host.record.id


def test_a_count_goes_to_a_host_that_has_the_model(server: Server, host: Fake) -> None:
    with fake_host(models="newer"):
        saw = server.post("/v1/responses/input_tokens", {"model": "demo", "input": "a"}).json()
        assert saw["host"] == host.record.id


def test_a_host_of_another_version_is_503_that_names_both(server: Server, host: Fake) -> None:
    from mlxnb import __version__

    with fake_host(models="elder", version="0.0.1"):
        answer = server.post("/v1/responses", asks("elder"))
        assert answer.status_code == 503
        message = answer.json()["error"]["message"]
        assert "0.0.1" in message and __version__ in message


def test_w61_requests_are_activity_of_the_kernel_that_answers(server: Server) -> None:
    url = f"{BASE_URL}api/kernels"
    kernel = server.plain("POST", url, headers=server.jupyter, json={}).json()["id"]

    def active() -> str:
        found = server.plain("GET", f"{url}/{kernel}", headers=server.jupyter).json()
        return str(found["last_activity"])

    until(lambda: active() == active())
    with fake_host(models="kernels", kernel_id=kernel) as host:
        before = active()
        with server.stream("/v1/responses", asks("kernels", events=SSE[:2], step=True)) as answer:
            chunks = answer.iter_raw()
            next(chunks)
            first = active()
            time.sleep(TOUCH_S)
            host.go()
            next(chunks)
            second = active()
            host.go()
        assert before < first < second
    server.plain("DELETE", f"{url}/{kernel}", headers=server.jupyter)


def test_kernels_find_the_record_of_the_notebook_server(server: Server) -> None:
    from mlxnb.link.record import records

    (record,) = records("notebook")
    assert record.url == server.base
    assert record.process.pid == server.process.pid
