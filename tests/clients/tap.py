"""Between clients and the notebook port: passes every byte on, and keeps it to be judged."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Exchange:
    """One request and its answer; ``whole``: the answer was not cut off."""

    method: str
    path: str
    sent: bytes
    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")


class Tap:
    """Listens on a loopback port for one server; ``close`` it at the end."""

    def __init__(self, port: int) -> None:
        tap = self
        self._target = ("127.0.0.1", port)
        self._connections: list[_Connection] = []
        self._sockets: set[socket.socket] = set()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                tap._handle(self.request)

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self) -> list[Exchange]:
        """What has gone through and was not taken yet, of connections that are done with it."""
        return [exchange for one in list(self._connections) for exchange in one.take()]

    def close(self) -> None:
        self._server.shutdown()
        for one in list(self._sockets):
            _end(one, socket.SHUT_RDWR)
        self._server.server_close()  # waits for its threads

    def _handle(self, client: socket.socket) -> None:
        connection = _Connection()
        self._connections.append(connection)
        with socket.create_connection(self._target) as upstream:
            self._sockets |= {client, upstream}
            back = threading.Thread(target=_pump, args=(upstream, client, connection.got))
            back.start()
            _pump(client, upstream, connection.sent)
            back.join()
            self._sockets -= {client, upstream}


class _Server(socketserver.ThreadingTCPServer):
    request_queue_size = 128


def _pump(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
    """Pass bytes on until one side ends, and end the other."""
    try:
        while data := source.recv(65536):
            kept += data
            sink.sendall(data)
    except OSError:
        _end(source, socket.SHUT_RD)
    _end(sink, socket.SHUT_WR)


def _end(one: socket.socket, how: int) -> None:
    with suppress(OSError):
        one.shutdown(how)


@dataclass
class _Connection:
    sent: bytearray = field(default_factory=bytearray)
    got: bytearray = field(default_factory=bytearray)
    taken: int = 0

    def take(self) -> list[Exchange]:
        asked, told = list(_requests(bytes(self.sent))), bytes(self.got)
        found = []
        for method, path, body in asked:
            if not told:
                break
            exchange, told = _answer(method, path, body, told)
            found.append(exchange)
        new, self.taken = found[self.taken :], len(found)
        return new


def _requests(raw: bytes) -> Iterator[tuple[str, str, bytes]]:
    while b"\r\n\r\n" in raw:
        (method, path, _), headers, rest = _head(raw)
        body, raw, _ = _body(headers, rest, none=True)
        yield method, path, body


def _answer(method: str, path: str, sent: bytes, raw: bytes) -> tuple[Exchange, bytes]:
    (_, status, *_), headers, rest = _head(raw)
    bare = method == "HEAD" or status in ("204", "304")
    body, rest, whole = (b"", rest, True) if bare else _body(headers, rest)
    return Exchange(method, path, sent, int(status), headers, body, whole), rest


def _head(raw: bytes) -> tuple[list[str], dict[str, str], bytes]:
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first.split(" "), {name.lower(): value.strip() for name, _, value in pairs}, rest


def _body(headers: Any, raw: bytes, none: bool = False) -> tuple[bytes, bytes, bool]:
    """The body, what follows it, and whether it is all there."""
    if headers.get("transfer-encoding") == "chunked":
        return _chunks(raw)
    if "content-length" not in headers:
        return (b"", raw, True) if none else (raw, b"", True)
    length = int(headers["content-length"])
    return raw[:length], raw[length:], len(raw) >= length


def _chunks(raw: bytes) -> tuple[bytes, bytes, bool]:
    body = b""
    while True:
        size, found, rest = raw.partition(b"\r\n")
        if not found:
            return body, b"", False
        length = int(size, 16)
        if length == 0:
            return body, rest[2:], True
        body += rest[:length]
        if len(rest) < length + 2:
            return body, b"", False
        raw = rest[length + 2 :]
