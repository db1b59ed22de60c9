"""Where mlxnb keeps what outlives a process: records of hosts, sockets, keys, the store.

All of it is private to one user: directories are 0700 and files 0600. A directory that is not is
refused, since whoever can write there can pretend to be a host.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import psutil

from mlxnb.errors import NotPrivate, StateUnwritable

# The shorter of the limits on a socket's path, macOS's; its final zero byte is one of them.
SOCKET_PATH_BYTES = 104
# Where a socket cannot be made, or is seen by machines that cannot connect to it.
NETWORK = ("nfs", "cifs", "smb", "afp", "9p", "afs", "lustre", "gpfs", "ceph", "beegfs", "fuse")


def state_dir() -> Path:
    """The user's private directory: ``$MLXNB_STATE``, else the platform's directory for state.

    Raises
    ------
    NotPrivate
        It belongs to someone else, or others may enter it.
    StateUnwritable
        It cannot be made.
    """
    override = os.environ.get("MLXNB_STATE")
    if override:
        return private(Path(override).expanduser().absolute())
    from platformdirs import user_state_path

    return private(Path(user_state_path("mlxnb", appauthor=False)))


def records_dir() -> Path:
    """The directory of the records of this user's hosts; made where it is missing."""
    return private(state_dir() / "hosts")


def keys_file() -> Path:
    """The file of the keys' hashes; it need not exist."""
    return state_dir() / "keys.json"


def saved_key_file(name: str) -> Path:
    """The file that the key of that name is saved in for clients; it need not exist."""
    return private(state_dir() / "keys") / name


def store_file() -> Path:
    """The SQLite file of stored responses, one for all of this user's hosts; it need not exist."""
    return state_dir() / "responses.sqlite3"


def new_socket(name: str) -> Path:
    """A path for a new Unix socket: short enough, private, and not on a network file system.

    It is beside the records where that fits, else in ``$XDG_RUNTIME_DIR``, else in a fresh
    directory for temporary files, which belongs to this socket alone.

    Raises
    ------
    NotPrivate, StateUnwritable
        As `state_dir`; or no directory fits.
    """
    for folder in (records_dir(), _runtime_dir()):
        if folder is not None and _fits(folder / f"{name}.sock"):
            return private(folder) / f"{name}.sock"
    for temporary in (Path(tempfile.gettempdir()), Path("/tmp")):
        # the name that mkdtemp makes is that long, and fresh: no other user can have taken it
        if _fits(temporary / "mlxnb-12345678" / f"{name}.sock"):
            return Path(tempfile.mkdtemp(prefix="mlxnb-", dir=temporary)) / f"{name}.sock"
    raise StateUnwritable(
        "a socket needs a short path on a local file system; set MLXNB_STATE or TMPDIR to one"
    )


def _runtime_dir() -> Path | None:
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return Path(folder) / "mlxnb" if folder and Path(folder).is_dir() else None


def _fits(socket: Path) -> bool:
    return len(os.fsencode(socket)) < SOCKET_PATH_BYTES and not on_network(socket)


def on_network(path: Path) -> bool:
    """Whether a path is on a file system that other machines may share."""
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    real = Path(os.path.realpath(path))
    # the deepest mount; of several at one place the last, which is the one that is seen
    kind = next((mounts[str(up)] for up in (real, *real.parents) if str(up) in mounts), "")
    return kind.lower().startswith(NETWORK)


def private(folder: Path) -> Path:
    """Make ``folder`` where it is missing, and return it if it is this user's alone.

    Raises
    ------
    NotPrivate
        It is a link, belongs to someone else, or others may enter it.
    StateUnwritable
        It cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateUnwritable(
            f"{folder} cannot be made ({error.strerror}); set MLXNB_STATE to another directory"
        ) from error
    check_private(folder)
    return folder


def check_private(folder: Path) -> None:
    """Raise ``NotPrivate`` unless ``folder`` is a directory of this user's alone."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotPrivate(f"{folder} is no directory of its own; set MLXNB_STATE to another")
    if found.st_uid != os.geteuid():
        raise NotPrivate(f"{folder} belongs to another user; set MLXNB_STATE to another directory")
    if found.st_mode & 0o077:
        raise NotPrivate(f"others may enter {folder}; `chmod 700` it if nobody else wrote there")


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, at once: others see the old text or the new."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
