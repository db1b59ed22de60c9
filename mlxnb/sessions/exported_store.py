"""Sessions that are kept: one file each in the user's state directory, written after each turn."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from mlxnb.errors import InvalidOption, MlxnbError, SessionExists, UnknownSession
from mlxnb.link.places import private, state_dir
from mlxnb.sessions import exported as files
from mlxnb.sessions.exported import Exported

log = logging.getLogger(__name__)


class Kept:
    """The file of one session, written on threads of its own: a turn's end waits for no disk.

    Parameters
    ----------
    state
        Gives the session as it is now.

    Raises
    ------
    SessionExists
        Another session of that name is kept already.
    InvalidOption, NotPrivate, StateUnwritable
        It cannot be written.
    """

    def __init__(self, name: str, identity: str, state: Callable[[], Exported]) -> None:
        self._name, self._state = name, state
        self._lock = threading.Lock()
        self._gone = False
        path = kept_file(name)
        if path.exists() and files.read(path).id != identity:
            raise SessionExists(
                f"another session {name!r} is kept already; restore that one, fork this one "
                "under another name, or remove that one with --forget"
            )
        self.write()

    def save(self) -> None:
        """Write the session's state soon; the process does not end before."""
        threading.Thread(target=self._save, name="mlxnb-keep").start()

    def _save(self) -> None:
        try:
            self.write()
        except MlxnbError as error:
            log.warning("a session that is kept was not saved: %s", error)

    def write(self) -> None:
        """Write the session's state now, and make the folder again where it is gone.

        Raises
        ------
        InvalidOption, NotPrivate, StateUnwritable
            It cannot be written.
        """
        with self._lock:  # the last to write has the newest state
            if not self._gone:
                files.write(kept_file(self._name), self._state().model_dump_json())

    def forget(self) -> None:
        """Delete the file, and write no more."""
        with self._lock:
            self._gone = True
            kept_file(self._name).unlink(missing_ok=True)


def kept_file(name: str) -> Path:
    """Where the session of that name is kept; it need not exist."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return private(state_dir() / "sessions") / f"{quote(name, safe='')[:80]}-{digest}.json"


def kept_sessions() -> list[Exported]:
    """All that are kept and can be read, the one that was saved last first."""
    found = []
    for path in private(state_dir() / "sessions").glob("*.json"):
        try:
            found.append(files.read(path))
        except InvalidOption as error:
            log.warning("%s", error)
    return sorted(found, key=lambda each: each.saved_at, reverse=True)


def find_kept(name: str | None, whose: Callable[[str], bool]) -> Exported:
    """The session that is kept under a name; None: the one that was saved last.

    Parameters
    ----------
    whose
        Whether the session of a name may be seen.

    Raises
    ------
    UnknownSession
        There is none.
    InvalidOption
        Its file is broken.
    """
    if name is not None and (path := kept_file(name)).exists():
        return files.read(path)
    there = [each for each in kept_sessions() if whose(each.name)]
    if name is None and there:
        return there[0]
    names = ", ".join(each.name for each in there) or "none"
    wanted = "no session is kept" if name is None else f"no session {name!r} is kept"
    raise UnknownSession(f"{wanted} (kept: {names})")


def is_kept(name: str) -> bool:
    """Whether there is a file of a session of that name."""
    return kept_file(name).exists()


def forget_kept(name: str) -> bool:
    """Delete the file of a session that is not here; whether there was one."""
    path = kept_file(name)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there
