"""What both kinds of client of a host need: its socket, and JSON both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlxnb.errors import HostRefused, HostUnreachable
from mlxnb.link.places import check_private
from mlxnb.link.record import HostRecord

CONNECT_S = 5.0
"""Seconds to reach a host of this machine. An answer may take as long as its model takes."""


def socket_of(record: HostRecord) -> str:
    """The path of a host's socket, which others cannot have put there.

    Raises
    ------
    HostUnreachable
        It is gone.
    NotPrivate
        Others may enter its directory.
    """
    assert record.socket is not None, "a notebook server's record has no socket"
    try:
        check_private(Path(record.socket).parent)
    except FileNotFoundError as error:
        raise HostUnreachable(record.title or record.kind, "its socket is gone") from error
    return record.socket


def as_json(body: Any) -> tuple[bytes | None, dict[str, str]]:
    """A request's content and its headers; None: it has none."""
    if body is None:
        return None, {}
    return json.dumps(body).encode(), {"Content-Type": "application/json"}


def parsed(status: int, content: bytes) -> Any:
    """The JSON of an answer; None where it is none.

    Raises
    ------
    HostRefused
        The status is an error's.
    """
    try:
        entry = json.loads(content)
    except ValueError:
        entry = None
    if 200 <= status < 300:
        return entry
    raise HostRefused(status, entry)
