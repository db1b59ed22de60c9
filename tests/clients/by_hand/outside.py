"""The rest of the world: a proxy that lets nobody through and notes whom a client tried."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy")


class Outside:
    """Give a client's process ``environment``; ``tried`` are the first lines of its requests."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.tried: list[str] = []
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        threading.Thread(target=self._refuse, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        here = "127.0.0.1,localhost"
        return dict.fromkeys(VARIABLES, self.url) | {"NO_PROXY": here, "no_proxy": here}

    def _refuse(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                line = connection.recv(4096).partition(b"\r\n")[0]
                self.tried.append(line.decode("utf-8", "replace"))
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def outside() -> Iterator[Outside]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Outside(listening)
