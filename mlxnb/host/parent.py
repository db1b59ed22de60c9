"""The process that a headless host is for."""

from __future__ import annotations

import psutil

from mlxnb.errors import InvalidOption


class Parent:
    """A process by its id and its start: an id alone comes back.

    Raises
    ------
    InvalidOption
        There is no such process.
    """

    def __init__(self, pid: int) -> None:
        try:
            self._process = psutil.Process(pid)
            self._process.create_time()
        except (psutil.NoSuchProcess, ValueError) as error:
            raise InvalidOption(f"there is no process {pid} to serve") from error

    def is_alive(self) -> bool:
        """Whether it runs."""
        try:
            return self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
