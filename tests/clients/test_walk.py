"""No route of the extension is open, and none falls over: real hosts behind the real port."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jupyter.server import BASE_URL
from wire.mutated import VALUES, mutated

from mlxnb.host.app import CONTROL, PLAIN
from mlxnb.host.counts import COUNTS
from mlxnb.host.doors import DOORS

from .place import HEADLESS_ALONE, Place

pytestmark = HEADLESS_ALONE  # that routes are closed is the notebook server's doing
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
HOSTS_OWN = [*PLAIN, *CONTROL, *COUNTS, *(door.path for door in DOORS)]
"""Patterns of all routes that a host has."""


def paths() -> list[str]:
    """A path of each route, and of none."""
    made = [re.sub(r"\(.*?\)", "resp_abcdefgh_x", one).replace("/?", "/") for one in HOSTS_OWN]
    return [*made, "", "/v1", "/shared", "/nothing/at/all"]


WRONG: list[dict[str, str]] = [
    {},
    {"Authorization": "Bearer mlxnb_" + "a" * 43},
    {"x-api-key": "mlxnb_" + "a" * 43},
    {"Authorization": "token x"},
    {"X-Mlxnb-Identity": '{"name": "me", "kind": "jupyter"}', "X-Mlxnb-Nonce": "x"},
    {"Cookie": "username-127-0-0-1=x; _xsrf=y", "X-XSRFToken": "y"},
]


@pytest.mark.parametrize("path", paths())
def test_no_route_is_open(place: Place, path: str) -> None:  # W4, C45, C46
    for method in METHODS:
        for headers in WRONG:
            answer = place.server.ask(method, path, headers=headers, content=b"{}")
            if path == "/health" and method in ("GET", "HEAD"):
                assert answer.status_code == 200
                assert method == "HEAD" or answer.json() == {"status": "ok"}
                continue
            assert answer.status_code == 401, (method, headers)
            if method != "HEAD":
                assert answer.json()["error"]["type"] in ("authentication_error",), answer.text


@pytest.mark.parametrize("path", [p for p in paths() if p.startswith("/api/")])
def test_a_key_does_not_open_control_routes(place: Place, path: str) -> None:  # W1
    for method in ("GET", "POST", "DELETE"):
        assert place.server.ask(method, path, content=b"{}").status_code == 403


@pytest.mark.parametrize("path", ["contents", "kernels", "terminals", "sessions", "me"])
def test_a_key_opens_nothing_of_jupyters(place: Place, path: str) -> None:  # W4
    key = place.server.key
    for headers in ({"Authorization": f"Bearer {key}"}, {"x-api-key": key}):
        for method in ("GET", "POST"):
            answer = place.server.plain(method, f"{BASE_URL}api/{path}", headers=headers)
            assert answer.status_code in (401, 403, 405)


def test_a_cookie_needs_its_xsrf_token(place: Place) -> None:  # W4
    server = place.server
    with httpx2.Client(timeout=60, trust_env=False) as browser:
        browser.get(f"{server.root}{BASE_URL}login")
        browser.get(f"{server.root}{BASE_URL}api/me?token={server.token}")
        url, body = f"{server.base}/v1/responses", {"model": "talker", "input": "Hi"}
        refused = browser.post(url, json=body)
        assert refused.status_code == 403
        assert set(refused.json()["error"]) == {"type", "message", "code", "param"}
        token = str(browser.cookies["_xsrf"])
        assert browser.post(url, json=body, headers={"X-XSRFToken": token}).status_code == 200


@pytest.mark.parametrize("header", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}])
def test_other_origins_and_hosts_are_refused(place: Place, header: dict[str, str]) -> None:
    for headers in (place.server.bearer, place.server.jupyter):
        answer = place.server.post(
            "/v1/responses", {"model": "talker", "input": "Hi"}, headers=headers | header
        )
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


# --- malformed bodies -------------------------------------------------------------------------

TOOL = {"type": "object", "properties": {"at": {"type": "string"}}}
GOOD: dict[str, list[dict[str, Any]]] = {
    "/v1/responses": [
        {
            "model": "talker",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
            "tools": [{"type": "function", "name": "look", "parameters": TOOL}],
            "text": {"format": {"type": "json_schema", "name": "x", "schema": TOOL}},
            "reasoning": {"effort": "low", "summary": "auto"},
            "metadata": {"a": "b"},
            "max_output_tokens": 3,
        }
    ],
    "/v1/messages": [
        {
            "model": "talker",
            "system": [{"type": "text", "text": "Be kind."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            "tools": [{"name": "look", "input_schema": TOOL}],
            "tool_choice": {"type": "auto"},
            "thinking": {"type": "enabled", "budget_tokens": 2},
            "stop_sequences": ["x"],
            "max_tokens": 3,
        }
    ],
    "/v1/chat/completions": [
        {
            "model": "talker",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            "tools": [{"type": "function", "function": {"name": "look", "parameters": TOOL}}],
            "stop": ["x"],
            "max_tokens": 3,
        }
    ],
}
GOOD["/v1/responses/input_tokens"] = GOOD["/v1/responses"]
GOOD["/v1/messages/count_tokens"] = GOOD["/v1/messages"]
FUZZ = settings(max_examples=120, suppress_health_check=list(HealthCheck), database=None)


@pytest.mark.parametrize("path", GOOD)
def test_what_is_malformed_is_the_clients_mistake(place: Place, path: str) -> None:
    seen = []

    @FUZZ
    @given(st.one_of(mutated(GOOD[path]), VALUES))
    def ask(body: Any) -> None:
        answer = place.server.ask("POST", path, content=json.dumps(body).encode())
        assert answer.status_code < 500, answer.text
        seen.append(answer.status_code)

    ask()
    mangled = random.Random(path)
    good = json.dumps(GOOD[path][0]).encode()
    for _ in range(100):
        body = bytearray(good)
        for _ in range(mangled.randint(1, 4)):
            body[mangled.randrange(len(body))] = mangled.randrange(256)
        answer = place.server.ask("POST", path, content=bytes(body) + b"]")
        assert answer.status_code == 400
    assert any(status >= 400 for status in seen)
    assert place.server.post(path, GOOD[path][0]).status_code == 200
