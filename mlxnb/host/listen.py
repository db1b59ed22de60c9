"""Sockets that a host listens on: a Unix socket of its user's alone, and a loopback port."""

from __future__ import annotations

import socket
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket
from tornado.web import Application

from mlxnb.errors import InvalidOption
from mlxnb.link.places import check_private

ADDRESS = "127.0.0.1"
"""The only address that is ever bound (W64)."""
ENDLESS = 2**40
"""A body of any size is read, so that its sender hears what is wrong; `CappedBody` keeps little."""


def on_socket(app: Application, path: Path) -> HTTPServer:
    """Serve on a new Unix socket.

    Raises
    ------
    NotPrivate
        Others may enter its directory.
    """
    check_private(path.parent)
    server = HTTPServer(app, max_body_size=ENDLESS)
    server.add_socket(bind_unix_socket(str(path), mode=0o600))
    return server


def on_port(app: Application, port: int) -> tuple[HTTPServer, int]:
    """Serve on a port of the loopback address; 0: any. Returns the port too.

    Raises
    ------
    InvalidOption
        It is taken, or not this user's to take.
    """
    try:
        listening = socket.create_server((ADDRESS, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidOption(f"port {port} cannot be used ({reason}); choose another one") from error
    server = HTTPServer(app, max_body_size=ENDLESS)
    listening.setblocking(False)
    server.add_socket(listening)
    return server, int(listening.getsockname()[1])
