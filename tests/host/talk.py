"""Requests of tests, and streams as lists of events."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from mlxnb.host.server import Server
from mlxnb.link.client import Client
from mlxnb.link.proof import owner, sign

ECHO = "/mlxnb/v1/echo"
JSON = {"Content-Type": "application/json"}


def post(client: Client, body: Any, path: str = ECHO, **headers: str) -> httpx2.Response:
    """A whole answer, whatever its status."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with client.stream("POST", path, body=content, headers=JSON | headers) as answer:
        answer.read()
    return answer


def get(client: Client, path: str, method: str = "GET") -> httpx2.Response:
    with client.stream(method, path) as answer:
        answer.read()
    return answer


def raw(server: Server, body: Any, path: str = ECHO) -> socket.socket:
    """A connection on which a request was sent, to be read from, or to be closed."""
    content = json.dumps(body).encode()
    headers = sign(server.record.secret, "POST", path, owner()) | JSON
    headers |= {"Host": "mlxnb", "Content-Length": str(len(content))}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    connection = socket.socket(socket.AF_UNIX)
    assert server.record.socket is not None
    connection.connect(server.record.socket)
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + content)
    return connection


def read_until(connection: socket.socket, part: bytes) -> None:
    """Read until this has come."""
    got = b""
    while part not in got:
        more = connection.recv(65536)
        assert more, f"the connection ended after {got!r}"
        got += more


def wait_idle(server: Server) -> None:
    """Wait until nothing is in flight."""
    wait_until(lambda: server.in_flight == 0)


def wait_until(fact: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < until, "it never came to be so"
        time.sleep(0.005)


@contextmanager
def streamed(client: Client, body: Any, path: str = ECHO) -> Iterator[Iterator[tuple[str, Any]]]:
    """The events of a stream as they come; leaving the context early closes the connection."""
    content = json.dumps(body | {"stream": True}).encode()
    with client.stream("POST", path, body=content, headers=JSON) as answer:
        assert answer.status_code == 200, answer.read()
        yield events(answer.iter_lines())


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
