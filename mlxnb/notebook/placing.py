"""Where a model is to run: in this kernel, or in a host that other notebooks share.

A kernel is a notebook's of a server if that server started it. Where the server has the extension
its shared host keeps models over restarts of the kernel; a kernel that is nobody's runs its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil

from mlxnb import __version__
from mlxnb.errors import HostUnreachable, InvalidOption
from mlxnb.host.remote.engine import RemoteEngine
from mlxnb.link.ask import shared_host
from mlxnb.link.record import HostRecord, records


def notebook_server() -> HostRecord | None:
    """The record of the notebook server that started this process; None: there is none."""
    above = set(_ancestors())
    return next((r for r in records("notebook") if r.process.pid in above), None)


def _ancestors() -> Iterator[int]:
    named = os.environ.get("JPY_PARENT_PID", "")
    if named.isdecimal():
        yield int(named)
    yield from (process.pid for process in psutil.Process().parents())


def host_with(model: str) -> HostRecord | None:
    """A live host of another process that has a model; the newest, of our version."""
    own = os.getpid()
    return next(
        (
            record
            for record in records()
            if model in record.models
            and record.version == __version__
            and record.process.pid != own
        ),
        None,
    )


def place(model: str, mode: str, here: bool, current: RemoteEngine | None) -> RemoteEngine | None:
    """The engine that is to have a model; None: this process's own.

    Parameters
    ----------
    model
        Its full name.
    mode
        ``auto``: where it is loaded already, else the server's shared host, else here;
        ``kernel``: here; ``shared``: in the shared host or not at all.
    here
        Here, whatever the mode.
    current
        The engine in use, where it is another process's; kept where it is the right one.

    Raises
    ------
    InvalidOption
        The shared host was asked for and there is none.
    WireError, HostUnreachable
        The shared host did not start.
    """
    if here or mode == "kernel":
        return None
    found = host_with(model) if mode == "auto" else None
    if found is None:
        server = notebook_server()
        if server is None and mode == "auto":
            return None
        if server is None:
            raise InvalidOption(
                "no notebook server with mlxnb's extension started this kernel, so there is no "
                "shared host; load with --here"
            )
        found = _shared(server)
    if current is not None and not current.closed and current.record.uuid == found.uuid:
        return current
    return RemoteEngine(found)


def _shared(server: HostRecord) -> HostRecord:
    """The server's shared host, started if need be."""
    host_id = shared_host(server)
    found = next((record for record in records() if record.id == host_id), None)
    if found is None:
        raise HostUnreachable(host_id, "it ended as soon as it had started")
    return found
