"""W4, W62, C45, C46: who may come in, and what of a credential goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from link.fake_host import Fake

from jupyter.server import BASE_URL, Server, notebook_server
from mlxnb.link import keys
from mlxnb.link.proof import owner

ROUTES = [
    ("POST", "/v1/responses"),
    ("POST", "/v1/responses/input_tokens"),
    ("GET", "/v1/responses/resp_abcdefgh_1"),
    ("DELETE", "/v1/responses/resp_abcdefgh_1"),
    ("POST", "/v1/responses/resp_abcdefgh_1/cancel"),
    ("GET", "/v1/responses/resp_abcdefgh_1/input_items"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/demo"),
    ("GET", "/metrics"),
    ("GET", "/api/turns"),
    ("GET", "/api/prefix"),
    ("GET", "/api/sessions"),
    ("GET", "/api/models"),
    ("GET", "/api/status"),
    ("GET", "/api/explain/turn"),
    ("POST", "/api/load"),
    ("POST", "/api/unload"),
    ("POST", "/api/sessions"),
    *((method, path) for method in ("GET", "HEAD") for path in ("", "/", "/v1")),
    *(
        (method, "/no/such/path")
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    ),
]
CONTROL = [(method, path) for method, path in ROUTES if path.startswith("/api/")]
JUPYTER = [
    "api/contents",
    "api/kernels",
    "api/terminals",
    "api/sessions",
    "api/me",
    "files/log",
]


def credentials(server: Server) -> dict[str, dict[str, str]]:
    """Wrong ones, and right ones in the wrong place."""
    return {
        "none": {},
        "wrong key": {"Authorization": "Bearer mlxnb_" + "a" * 43},
        "wrong x-api-key": {"x-api-key": "mlxnb_" + "a" * 43},
        "wrong token": {"Authorization": "token abc"},
        "wrong bearer": {"Authorization": f"Bearer {server.token}x"},
        "another scheme": {"Authorization": f"Basic {server.token}"},
        "a key's hash": {"Authorization": f"Bearer {keys.all_keys()[0].hash}"},
        "empty": {"Authorization": "Bearer", "x-api-key": ""},
        "not Latin": {"x-api-key": "\u00e9\u00ff"},
        "a made-up cookie": {"Cookie": "username-127-0-0-1=abc; _xsrf=1"},
    }


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_w4_no_route_is_open(server: Server, host: Fake, method: str, path: str) -> None:
    for name, headers in credentials(server).items():
        sent = {k: v.encode("latin-1") for k, v in headers.items()}
        answer = server.ask(method, path, headers=sent, content=b"{}")
        assert answer.status_code == 401, name
        assert "location" not in answer.headers
        if method != "HEAD":
            assert answer.json()["error"]["type"] == "authentication_error", name
            assert "_xsrf" not in answer.text
    assert host.seen["requests"] == []


def test_w4_a_wrong_credential_in_the_url_is_refused_too(server: Server, host: Fake) -> None:
    assert server.ask("GET", "/v1/models?token=abc", headers={}).status_code == 401
    # a key is no Jupyter token: URLs end up in logs
    assert server.ask("GET", f"/v1/models?token={server.key}", headers={}).status_code == 401
    assert host.seen["requests"] == []


def test_w3_each_protocol_has_its_own_401(server: Server) -> None:
    openai = server.post("/v1/responses", {}, headers={}).json()
    assert set(openai) == {"error"}
    assert set(openai["error"]) == {"message", "type", "param", "code"}
    answer = server.post("/v1/messages", {}, headers={})
    body = answer.json()
    assert body["type"] == "error" and set(body["error"]) == {"type", "message"}
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    models = server.ask("GET", "/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert models["type"] == "error"


def test_w4_health_tells_strangers_a_status_alone(server: Server, host: Fake) -> None:
    for headers in credentials(server).values():
        answer = server.ask(
            "GET", "/health", headers={k: v.encode("latin-1") for k, v in headers.items()}
        )
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    told = server.ask("GET", "/health").json()
    assert [one["id"] for one in told["hosts"]] == [host.record.id]
    assert server.ask("POST", "/health", headers={}).status_code == 401


@pytest.mark.parametrize("place", ["Authorization", "x-api-key", "both"])
def test_w4_a_key_opens_the_routes_and_names_its_caller(
    server: Server, host: Fake, place: str
) -> None:
    headers = {"Authorization": f"Bearer {server.key}", "x-api-key": server.key}
    sent = headers if place == "both" else {place: headers[place]}
    answer = server.post("/v1/responses", {"model": "demo"}, headers=sent)
    assert answer.status_code == 200
    assert answer.json()["identity"] == {"name": keys.check(server.key).name, "kind": "key"}  # type: ignore[union-attr]
    assert "set-cookie" not in answer.headers


def test_w4_a_key_beside_another_credential_is_found(server: Server, host: Fake) -> None:
    sent = {"Authorization": "Bearer something", "x-api-key": server.key}
    answer = server.post("/v1/messages", {"model": "demo"}, headers=sent)
    assert answer.json()["identity"]["kind"] == "key"


@pytest.mark.parametrize("way", ["Bearer", "token", "x-api-key", "url"])
def test_w4_jupyters_token_works_in_each_of_its_ways(server: Server, host: Fake, way: str) -> None:
    headers = {
        "Bearer": {"Authorization": f"Bearer {server.token}"},
        "token": {"Authorization": f"token {server.token}"},
        "x-api-key": {"x-api-key": server.token},
        "url": {},
    }[way]
    query = f"?token={server.token}&beta=true" if way == "url" else "?beta=true"
    answer = server.post(f"/v1/messages{query}", {"model": "demo"}, headers=headers)
    assert answer.status_code == 200
    assert answer.json()["identity"] == {"name": owner().name, "kind": "jupyter"}
    assert answer.json()["uri"] == "/mlxnb/v1/messages?beta=true"


def test_w4_a_revoked_key_is_refused_at_once(server: Server, host: Fake) -> None:
    text = keys.new("short-lived")
    headers = {"Authorization": f"Bearer {text}"}
    assert server.ask("GET", "/v1/models", headers=headers).status_code == 200
    keys.revoke("short-lived")
    assert server.ask("GET", "/v1/models", headers=headers).status_code == 401


@pytest.mark.parametrize("path", JUPYTER)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_w4_a_key_opens_nothing_of_jupyters(server: Server, path: str, method: str) -> None:
    key = keys.new(f"for-{method}-{path.replace('/', '-')}")  # Jupyter logs the last URL
    url = f"{BASE_URL}{path}"
    for headers in ({"Authorization": f"Bearer {key}"}, {"x-api-key": key}):
        answer = server.plain(method, url, headers=headers)
        # a redirect is to the login page; a method that is not there is refused to all
        assert answer.status_code in (302, 401, 403, 405), answer.text
        if answer.status_code == 302:
            assert f"{BASE_URL}login" in answer.headers["location"]
    answer = server.plain(method, f"{url}?token={key}")
    assert answer.status_code in (302, 401, 403, 405)


@pytest.mark.parametrize(("method", "path"), CONTROL)
def test_w4_control_routes_are_for_jupyters_users_alone(
    server: Server, host: Fake, method: str, path: str
) -> None:
    refused = server.ask(method, path)
    assert refused.status_code == 403 and "key" in refused.json()["error"]["message"]
    assert host.seen["requests"] == []
    assert server.ask(method, path, headers=server.jupyter).status_code == 200


@pytest.fixture
def browser(server: Server) -> Iterator[httpx2.Client]:
    """A client that has logged in, with cookies and no header."""
    with httpx2.Client() as client:
        client.get(f"{server.root}{BASE_URL}login")  # its form brings the XSRF token
        client.get(f"{server.root}{BASE_URL}api/me?token={server.token}")
        assert client.cookies.get("_xsrf")
        yield client


def test_w4_a_cookie_opens_the_routes_with_its_xsrf_token(
    server: Server, host: Fake, browser: httpx2.Client
) -> None:
    headers = {"X-XSRFToken": str(browser.cookies["_xsrf"])}
    url = f"{server.base}/v1/responses"
    answer = browser.post(url, json={"model": "demo"}, headers=headers)
    assert answer.status_code == 200
    assert answer.json()["identity"] == {"name": owner().name, "kind": "jupyter"}


@pytest.mark.parametrize("headers", [{}, {"X-XSRFToken": "wrong"}])
def test_w4_a_cookie_without_its_xsrf_token_is_refused(
    server: Server, host: Fake, browser: httpx2.Client, headers: dict[str, str]
) -> None:
    answer = browser.post(f"{server.base}/v1/responses", json={"model": "demo"}, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"]["type"] == "permission_error"
    assert host.seen["requests"] == []


def test_c45_a_wrong_key_is_401_whatever_cookie_comes_with_it(
    server: Server, browser: httpx2.Client
) -> None:
    for headers in ({"Authorization": "Bearer sk-abc"}, {"x-api-key": "mlxnb_abc"}):
        answer = browser.post(f"{server.base}/v1/responses", json={}, headers=headers)
        assert answer.status_code == 401 and "_xsrf" not in answer.text


@pytest.mark.parametrize("who", ["bearer", "jupyter"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_of_other_origins_are_refused_whatever_they_know(
    server: Server, host: Fake, who: str, method: str
) -> None:
    headers = getattr(server, who) | {"Origin": "https://elsewhere.example"}
    answer = server.ask(method, "/v1/models", headers=headers)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert host.seen["requests"] == []
    own = getattr(server, who) | {"Origin": server.root}
    assert server.ask(method, "/v1/models", headers=own).status_code == 200


def test_another_name_of_this_server_is_refused(server: Server, host: Fake) -> None:
    for headers in (server.bearer, server.jupyter, {}):
        sent = headers | {"Host": "elsewhere.example"}
        for path in ("/v1/models", "/health"):
            answer = server.ask("GET", path, headers=sent)
            assert answer.status_code == 403 and answer.json()["error"]
    assert host.seen["requests"] == []


def test_w62_no_credential_reaches_a_host(
    server: Server, host: Fake, browser: httpx2.Client
) -> None:
    xsrf = str(browser.cookies["_xsrf"])
    sent = {
        "Authorization": f"token {server.token}",
        "x-api-key": server.token,
        "X-XSRFToken": xsrf,
        "X-Mlxnb-Identity": '{"name":"root","kind":"jupyter"}',
        "X-Mlxnb-Auth": "abc",
        "X-Forwarded-For": "1.2.3.4",
        "Referer": f"{server.root}/?token={server.token}",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "some-beta",
    }
    url = f"{server.base}/v1/messages?beta=true&token={server.token}&_xsrf={xsrf}"
    saw = browser.post(url, json={"model": "demo"}, headers=sent).json()
    text = str(saw)
    assert server.token not in text and xsrf not in text
    names = {name.lower() for name in saw["headers"]}
    assert not names & {"cookie", "authorization", "x-api-key", "x-xsrftoken", "referer"}
    assert saw["headers"]["Anthropic-Version"] == "2023-06-01"
    assert saw["headers"]["Anthropic-Beta"] == "some-beta"
    assert saw["identity"] == {"name": owner().name, "kind": "jupyter"}


def test_w62_nothing_between_hosts_reaches_a_client(server: Server, host: Fake) -> None:
    answer = server.post("/v1/responses", {"model": "demo"})
    assert not [name for name in answer.headers if name.startswith("x-mlxnb")]
    assert "set-cookie" not in answer.headers


def test_w67_no_credential_is_in_the_servers_log(server: Server, host: Fake) -> None:
    for headers in (server.bearer, server.jupyter, {"x-api-key": server.key}):
        server.ask("GET", "/v1/models", headers=headers)
        server.ask("GET", f"/nothing?token={server.token}", headers=headers)
    server.ask("GET", "/v1/models", headers={"x-api-key": "mlxnb_wrong"})
    assert server.key not in server.log and "mlxnb_wrong" not in server.log
    assert "401 GET" in server.log and server.token not in server.log


def test_keys_that_cannot_be_read_let_nobody_in(server: Server, host: Fake, state: Path) -> None:
    text = (state / "keys.json").read_text()
    (state / "keys.json").write_text("broken")
    try:
        assert server.ask("GET", "/v1/models").status_code == 503
        assert server.ask("GET", "/v1/models", headers=server.jupyter).status_code == 200
    finally:
        (state / "keys.json").write_text(text)


def test_a_server_without_authentication_still_knows_a_wrong_key(
    tmp_path: Path, host: Fake
) -> None:
    open_ = {"token": "", "password": ""}
    with notebook_server(tmp_path / "s", start_host=False, IdentityProvider=open_) as server:
        assert server.ask("GET", "/v1/x").json()["identity"]["kind"] == "key"
        wrong = server.post("/v1/responses", {}, headers={"x-api-key": "mlxnb_wrong"})
        assert wrong.status_code == 401


def test_a_server_that_allows_nothing_unauthenticated_works_the_same(
    tmp_path: Path, host: Fake
) -> None:
    strict = {"allow_unauthenticated_access": False}
    with notebook_server(tmp_path / "s", start_host=False, ServerApp=strict) as server:
        assert server.post("/v1/responses", {"model": "demo"}).status_code == 200
        for headers in ({}, {"x-api-key": "wrong"}):
            for method in ("GET", "POST"):
                assert server.ask(method, "/v1/models", headers=headers).status_code == 401
        assert "of Route registered" not in server.log
