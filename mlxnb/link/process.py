"""Which process wrote a record, and whether it still lives: a process id alone comes back."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told apart from all others of all machines that share a home directory.

    Attributes
    ----------
    pid
        Its number in its namespace.
    started
        When it started, as the system counts it; compared, never computed with.
    boot_id
        The boot of the machine that it runs in.
    pid_namespace
        The namespace of ``pid``: containers have their own.
    machine
        The host's name and, where there is one, the machine's id.
    """

    pid: int
    started: str
    boot_id: str
    pid_namespace: str
    machine: str

    @classmethod
    def here(cls) -> Process:
        """The process that asks."""
        pid = os.getpid()
        started = _started(pid)
        assert started is not None, "a process that asks is there"
        return cls(pid, started, _boot_id(), _pid_namespace(), _machine())

    def is_near(self) -> bool:
        """Whether its id means something here: the same machine and the same namespace."""
        return (self.machine, self.pid_namespace) == (_machine(), _pid_namespace())

    def is_alive(self) -> bool:
        """Whether it runs, of processes that are near."""
        return self.boot_id == _boot_id() and _started(self.pid) == self.started


def _started(pid: int) -> str | None:
    """When a process started; None: there is none of that id, or it is a zombie."""
    if sys.platform == "linux":  # psutil's time moves when the clock is set
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        # after the name, which may hold anything: state, parent, …; the start is field 22
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    try:
        process = psutil.Process(pid)
        dead = process.status() == psutil.STATUS_ZOMBIE
        return None if dead else str(process.create_time())
    except psutil.NoSuchProcess:
        return None


@cache
def _boot_id() -> str:
    if sys.platform == "linux":
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return str(int(psutil.boot_time()))


@cache
def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid") if sys.platform == "linux" else ""


@cache
def _machine() -> str:
    try:
        return f"{socket.gethostname()}/{Path('/etc/machine-id').read_text().strip()}"
    except OSError:
        return socket.gethostname()
