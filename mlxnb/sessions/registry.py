"""The sessions of a process by their names."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mlxnb.errors import InvalidOption, SessionExists, UnknownSession
from mlxnb.sessions.options import check_text

if TYPE_CHECKING:
    from mlxnb.sessions.local_session import LocalSession


NAME_CHARS = 1_000
"""Characters of a session's name, which stands in paths, at most."""


class Registry:
    """Sessions in order of their making. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sessions: dict[str, LocalSession] = {}

    def __iter__(self) -> Iterator[LocalSession]:
        with self._lock:
            return iter(list(self._sessions.values()))

    def get(self, name: str) -> LocalSession | None:
        """The session of that name, if there is one."""
        return self._sessions.get(name)

    def find(self, name: str) -> LocalSession:
        """The session of that name.

        Raises
        ------
        UnknownSession
            There is none.
        """
        with self._lock:
            if name not in self._sessions:
                there = ", ".join(self._sessions) or "none"
                raise UnknownSession(f"no session {name!r} (there are: {there})")
            return self._sessions[name]

    def add(self, name: str | None, stem: str, make: Callable[[str], LocalSession]) -> LocalSession:
        """A new session; without a name it gets one from ``stem``.

        Raises
        ------
        InvalidOption
            The name is no string.
        SessionExists
            The name is taken.
        """
        if name is not None:
            check_name(name)
        with self._lock:
            if name in self._sessions:
                raise SessionExists(f"a session {name!r} exists already")
            name = name or self._free_name(stem)
            self._sessions[name] = make(name)
            return self._sessions[name]

    def _free_name(self, stem: str) -> str:
        names = (f"{stem}-{number}" for number in itertools.count(1))
        return next(name for name in names if name not in self._sessions)

    def remove(self, name: str) -> LocalSession:
        """Take a session out.

        Raises
        ------
        UnknownSession
            There is none.
        """
        with self._lock:
            session = self.find(name)
            del self._sessions[name]
            return session


def check_name(name: Any) -> None:
    """Raise ``InvalidOption`` unless it can be a session's name."""
    check_text("name", name)
    if name in ("", ".", ".."):  # the last two go nowhere in a path
        raise InvalidOption(f"name is a string that is not empty, and no dots alone, not {name!r}")
    if len(name) > NAME_CHARS:
        raise InvalidOption(f"name has {len(name):,} characters, of {NAME_CHARS:,} at most")
