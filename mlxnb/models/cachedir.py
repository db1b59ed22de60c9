"""The user's cache directory: where imported models live."""

from __future__ import annotations

import os
from pathlib import Path

from mlxnb.errors import CacheUnwritable


def cache_dir() -> Path:
    """The directory of imported models: ``$MLXNB_CACHE``, else the platform's cache directory.

    It need not exist.
    """
    override = os.environ.get("MLXNB_CACHE")
    if override:
        return Path(override).expanduser().absolute()
    from platformdirs import user_cache_path

    return Path(user_cache_path("mlxnb", appauthor=False))


def writable(folder: Path) -> Path:
    """Create ``folder`` where it is missing, and return it.

    Raises
    ------
    CacheUnwritable
        It cannot be created or written; the message names it and the variable to set.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise unwritable(folder, PermissionError("no permission to write"))
    return folder


def unwritable(folder: Path, error: OSError) -> CacheUnwritable:
    """The error for a cache folder that cannot be written."""
    reason = error.strerror or str(error)
    return CacheUnwritable(
        f"the model cache {folder} cannot be written ({reason}); free or repair it, "
        "or set MLXNB_CACHE to another folder"
    )
