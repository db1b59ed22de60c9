"""Folders that mlxnb made itself: built aside, renamed into place, checked by a manifest.

A folder is what its manifest says: the origin it was built from, and each file's size, time and
SHA-256. A file whose size and time are unchanged is taken as unchanged; otherwise its hash
decides. So an altered or truncated folder is built again, and a copied one is not.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlxnb.models.cachedir import cache_dir, unwritable, writable

MANIFEST = "mlxnb.json"
IMPORTER = 1
"""Raised when importers write other bytes, so that older folders are built again."""


def ensure(folder: Path, origin: dict[str, Any], build: Callable[[Path], None]) -> Path:
    """Return ``folder`` as built from ``origin``, building it where it is missing or altered.

    Parameters
    ----------
    folder
        Where it belongs; its name's lock file stands beside it.
    origin
        What it is built from, JSON data; another origin means another build.
    build
        Fills the empty folder that it is given. Processes that ask at once build once.

    Raises
    ------
    CacheUnwritable
        The cache folder cannot be written.
    """
    from filelock import FileLock

    if intact(folder, origin):
        return folder
    writable(folder.parent)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        if not intact(folder, origin):
            _rebuild(folder, origin, build)
    return folder


def _rebuild(folder: Path, origin: dict[str, Any], build: Callable[[Path], None]) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as temporary:
            made = Path(temporary) / folder.name
            made.mkdir()
            build(made)
            _write_manifest(made, origin)
            if folder.exists():
                folder.rename(Path(temporary) / "replaced")
            made.rename(folder)
    except OSError as error:
        if error.filename is None and error.errno is None:  # one of ours, e.g. no network
            raise
        raise unwritable(folder.parent, error) from error


def intact(folder: Path, origin: dict[str, Any] | None = None) -> bool:
    """Whether ``folder`` holds exactly what its manifest says, built from ``origin`` if given."""
    manifest = read_manifest(folder)
    if manifest is None or (origin is not None and manifest["origin"] != _stamped(origin)):
        return False
    return all(_unchanged(folder / name, entry) for name, entry in manifest["files"].items())


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder that mlxnb made: ``origin`` and ``files``; None for others."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        manifest["origin"], manifest["files"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest if isinstance(manifest["origin"], dict) else None


def remove(folder: Path) -> None:
    """Delete a folder that mlxnb made, and its lock file."""
    assert folder.is_relative_to(cache_dir()), f"{folder} is not ours"
    shutil.rmtree(folder, ignore_errors=True)
    (folder.parent / f".{folder.name}.lock").unlink(missing_ok=True)


def _stamped(origin: dict[str, Any]) -> dict[str, Any]:
    return {**origin, "importer": IMPORTER}


def _write_manifest(folder: Path, origin: dict[str, Any]) -> None:
    files = {path.name: _entry(path) for path in sorted(folder.iterdir())}
    content = {"origin": _stamped(origin), "files": files}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1), "utf-8")


def _entry(path: Path) -> dict[str, Any]:
    status = path.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sha256(path)}


def _unchanged(path: Path, entry: dict[str, Any]) -> bool:
    try:
        status = path.stat()
        if status.st_size != entry["size"]:
            return False
        return bool(status.st_mtime_ns == entry["mtime_ns"] or sha256(path) == entry["sha256"])
    except (OSError, KeyError, TypeError):
        return False


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
