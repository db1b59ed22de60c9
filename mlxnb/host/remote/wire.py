"""Calls and streams to a host's control routes; its errors are raised as what they were there."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from mlxnb import errors
from mlxnb.errors import HostRefused, InvalidOption, MlxnbError
from mlxnb.link.client import Client
from mlxnb.link.record import HostRecord

API = "/mlxnb/api"
Told = tuple[str, dict[str, Any]]


class Wire:
    """A connection to one host; any thread may use it."""

    def __init__(self, record: HostRecord) -> None:
        self._client = Client(record)

    def get(self, path: str) -> Any:
        """What a route shows. Raises what the host raised, or `HostGone`."""
        return self._call("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What a route answers. Raises what the host raised, or `HostGone`."""
        return self._call("POST", path, dict(body or {}))

    def delete(self, path: str) -> None:
        """Let a route delete what it names."""
        self._call("DELETE", path, None)

    def _call(self, method: str, path: str, body: Any) -> Any:
        try:
            return self._client.call(method, API + path, body)
        except HostRefused as refused:
            raise as_it_was(refused) from None

    @contextmanager
    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[Iterator[Told]]:
        """The events of a route: names and payloads, as they come."""
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with self._client.stream("POST", API + path, body=content, headers=headers) as answer:
            if not answer.is_success:
                raise as_it_was(HostRefused(answer.status_code, _body(answer.read())))
            yield _events(answer.iter_lines())

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


def part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def as_it_was(refused: HostRefused) -> Exception:
    """The error that the host raised, if it is one of ours or of Python's own."""
    body = refused.body if isinstance(refused.body, Mapping) else {}
    told = body.get("error")
    told = told if isinstance(told, Mapping) else {}
    name = str(told.get("class"))
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        if refused.status == 400:
            return InvalidOption(str(refused), param=told.get("param"))
        return refused
    error: Exception = kind.__new__(kind)
    Exception.__init__(error, str(told.get("message")))
    if isinstance(error, MlxnbError):
        error.param = told.get("param")
    for name, value in (told.get("facts") or {}).items():
        setattr(error, name, value)
    return error


def _body(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _events(lines: Iterator[str]) -> Iterator[Told]:
    """Server-sent events, see https://html.spec.whatwg.org/multipage/server-sent-events.html ."""
    name, data = "", ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data += value
        elif not line and data:
            yield name, json.loads(data)
            name, data = "", ""
