"""The loopback port: who may come in, and from where (W4, W64)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2
import pytest
from tornado.iostream import IOStream

from mlxnb.errors import InvalidOption
from mlxnb.host.server import Server
from mlxnb.link import keys
from mlxnb.link.proof import owner
from mlxnb.link.record import HostRecord, records

from .doubles import HandService

BODY = {"text": "hi", "stream": True}


@pytest.fixture
def served(serve: Callable[..., Server], hand: HandService) -> Server:
    return serve(hand, port=0)


@pytest.fixture
def http(served: Server) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{served.record.url}/mlxnb", trust_env=False) as client:
        yield client


@pytest.fixture
def nodelay(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What streams have been told about small packets."""
    told: list[bool] = []
    real = IOStream.set_nodelay

    def note(stream: IOStream, value: bool) -> None:
        told.append(value)
        real(stream, value)

    monkeypatch.setattr(IOStream, "set_nodelay", note)
    return told


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def ask(http: httpx2.Client, hand: HandService, headers: dict[str, str]) -> str:
    """Whom a request with these headers comes from; it is answered."""
    with http.stream("POST", "/v1/echo", json=BODY, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        hand.next().end()
        answer.read()
    return hand.callers[-1]


def test_the_record_says_where_the_port_is(served: Server) -> None:
    (record,) = records()
    assert record.url == served.record.url
    assert record.url is not None
    assert record.url.startswith("http://127.0.0.1:")


def test_a_key_opens_the_port_by_either_header(http: httpx2.Client, hand: HandService) -> None:
    key = keys.new("laptop")
    for headers in (bearer(key), {"x-api-key": key}):
        assert ask(http, hand, headers) == "key:laptop"


def test_the_hosts_own_token_is_its_users(
    http: httpx2.Client, hand: HandService, served: Server
) -> None:
    assert ask(http, hand, bearer(served.token)) == ""
    assert owner().kind == "jupyter"


def test_an_event_goes_out_though_the_last_is_not_acknowledged(
    http: httpx2.Client, hand: HandService, served: Server, nodelay: list[bool]
) -> None:  # C44
    with http.stream("POST", "/v1/echo", json=BODY, headers=bearer(served.token)) as answer:
        assert nodelay == [True]
        hand.next().end()
        answer.read()


def test_a_revoked_key_is_refused(http: httpx2.Client) -> None:
    key = keys.new("laptop")
    keys.revoke("laptop")
    assert http.post("/v1/echo", json=BODY, headers=bearer(key)).status_code == 401


@pytest.mark.parametrize("headers", [{}, bearer("mlxnb_wrong"), {"x-api-key": "wrong"}])
def test_no_credential_or_a_wrong_one_is_a_401(
    http: httpx2.Client, hand: HandService, headers: dict[str, str]
) -> None:  # W4
    answer = http.post("/v1/echo", json=BODY, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"
    assert hand.answers == []


def test_a_token_in_the_url_is_none(http: httpx2.Client, served: Server) -> None:
    assert http.get("/v1", params={"token": served.token}).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:8888"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_pages_of_others_are_refused_whatever_they_present(
    http: httpx2.Client, served: Server, headers: dict[str, str]
) -> None:
    assert http.get("/v1", headers=bearer(served.token) | headers).status_code == 403
    assert http.get("/health", headers=headers).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:7", "[::1]:8000"])
def test_names_of_this_machine_are_answered(http: httpx2.Client, served: Server, host: str) -> None:
    assert http.get("/v1", headers=bearer(served.token) | {"Host": host}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_what_a_form_of_a_page_can_send_is_refused(
    http: httpx2.Client, served: Server, kind: str
) -> None:
    headers = bearer(served.token) | {"Content-Type": kind}
    assert http.post("/v1/echo", content=b"{}", headers=headers).status_code == 415


def test_no_page_may_read_what_is_answered(http: httpx2.Client, served: Server) -> None:
    preflight = http.options("/v1/echo", headers=bearer(served.token))
    assert preflight.status_code == 405
    answer = http.get("/v1", headers=bearer(served.token))
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert "set-cookie" not in answer.headers


def test_health_tells_its_status_alone(http: httpx2.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}


def test_a_key_does_not_open_the_control_routes(http: httpx2.Client) -> None:  # W1
    answer = http.get("/api/status", headers=bearer(keys.new("laptop")))
    assert answer.status_code == 403


def test_a_port_that_is_taken_is_said(served: Server, hand: HandService) -> None:
    assert served.record.url is not None
    port = int(served.record.url.rpartition(":")[2])
    record = HostRecord.here("kernel")
    with pytest.raises(InvalidOption, match=str(port)):
        Server(hand, record, port=port).start()  # type: ignore[arg-type]
    assert [live.uuid for live in records()] == [served.record.uuid]


def test_neither_token_nor_secret_is_shown(served: Server) -> None:  # W67
    shown = repr(served) + repr(served.record) + served.status().to_string()
    assert served.token not in shown
    assert served.record.secret not in shown
