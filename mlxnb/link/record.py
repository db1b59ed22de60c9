"""Records of hosts and notebook servers: a file each, by which they find each other.

A record is published when its process can answer and withdrawn when it stops. What a killed
process leaves is swept by whoever reads it, but only where that one can know: a home directory may
be shared by machines and containers, whose process ids say nothing here.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import string
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from mlxnb import __version__
from mlxnb.link.places import new_socket, records_dir, write_private
from mlxnb.link.process import Process

Kind = Literal["kernel", "headless", "notebook"]


@dataclass(frozen=True, slots=True)
class HostRecord:
    """One process that answers, and how to reach it.

    Attributes
    ----------
    uuid
        Names the file.
    id
        Eight letters, which the ids of its responses carry.
    kind
        ``kernel``: a kernel's own engine. ``headless``: an engine with a process of its own.
        ``notebook``: no engine, but a notebook server that passes requests on.
    socket
        The path of its Unix socket; None: it has none.
    url
        ``http://127.0.0.1:PORT`` where it listens on a port too; the URL of a notebook server.
    secret
        What both sides of a connection prove that they know.
    process
        Who it is.
    version
        Of mlxnb.
    title
        For people: a notebook's name, say.
    kernel_id
        Jupyter's id of the kernel, where it is one.
    models
        The names of the models that it has loaded; publish the record again when that changes.
    aliases
        What names that clients ask for stand for, at a notebook server.
    created
        When it began to answer, in seconds since 1970.
    """

    uuid: str
    id: str
    kind: Kind
    socket: str | None
    url: str | None
    secret: str = field(repr=False)
    process: Process
    version: str = __version__
    title: str = ""
    kernel_id: str | None = None
    models: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict, hash=False)
    created: float = field(default_factory=time.time)

    @classmethod
    def here(
        cls, kind: Kind, *, url: str | None = None, title: str = "", kernel_id: str | None = None
    ) -> HostRecord:
        """A record of this process with new names, a new secret and, for a host, a socket's path.

        Raises
        ------
        NotPrivate, StateUnwritable
            As `places.new_socket`.
        """
        name = "".join(secrets.choice(string.ascii_lowercase) for _ in range(8))
        path = None if kind == "notebook" else str(new_socket(name))
        return cls(
            uuid=str(uuid.uuid4()),
            id=name,
            kind=kind,
            socket=path,
            url=url,
            secret=secrets.token_hex(32),
            process=Process.here(),
            title=title,
            kernel_id=kernel_id,
        )

    def with_models(self, models: tuple[str, ...]) -> HostRecord:
        """The same record with other models."""
        return replace(self, models=models)

    def is_live(self) -> bool:
        """Whether it can be reached from here: its process is near and runs."""
        return self.process.is_near() and self.process.is_alive()


def publish(record: HostRecord) -> Path:
    """Write a record, or write it again, and return its file.

    Raises
    ------
    NotPrivate, StateUnwritable
        As `places.state_dir`.
    """
    path = _file(record)
    write_private(path, json.dumps(asdict(record)))
    return path


def withdraw(record: HostRecord) -> None:
    """Remove a record and its socket; nothing happens where they are gone."""
    _file(record).unlink(missing_ok=True)
    if record.socket is not None:
        _remove_socket(Path(record.socket))


def _remove_socket(path: Path) -> None:
    with suppress(OSError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    if path.parent.name.startswith("mlxnb-"):  # made for this socket alone
        with suppress(OSError):
            path.parent.rmdir()


def records(kind: Kind | None = None) -> list[HostRecord]:
    """The live records of this user on this machine, newest first.

    Records of processes that were killed are removed; those of other machines and containers are
    left alone.
    """
    live = []
    for record in _written():
        if record.is_live():
            live.append(record)
        elif record.process.is_near():
            withdraw(record)
    wanted = [record for record in live if kind in (None, record.kind)]
    return sorted(wanted, key=lambda record: record.created, reverse=True)


def aliases() -> dict[str, str]:
    """What names stand for at this user's notebook servers; the newest server's word counts."""
    known: dict[str, str] = {}
    for server in records("notebook"):
        known |= {name: real for name, real in server.aliases.items() if name not in known}
    return known


_FIELDS = {one.name for one in fields(HostRecord)}


def _file(record: HostRecord) -> Path:
    return records_dir() / f"{record.uuid}.json"


def _written() -> Iterator[HostRecord]:
    for path in records_dir().glob("*.json"):
        record = _read(path)
        if record is not None and path.stem == record.uuid:
            yield record


def _read(path: Path) -> HostRecord | None:
    """The record in a file; None where it is not one of ours, or just goes away."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                return None
            entry = json.load(file)
        return _parse(entry)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _parse(entry: Any) -> HostRecord:
    """The record; what another version has written besides is left out."""
    known = {key: value for key, value in entry.items() if key in _FIELDS}
    known["process"] = Process(**known["process"])
    known["models"] = tuple(known["models"])
    return HostRecord(**known)
