"""Where KV is kept on disk, and how much of it."""

from __future__ import annotations

import os
import re

from mlxnb.cache.disk.tier import DiskTier
from mlxnb.errors import InvalidOption
from mlxnb.models.cachedir import cache_dir

VARIABLE = "MLXNB_DISK"
_SIZE = re.compile(r"(\d+)\s*(|[kmgt])i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def open_disk(quota: int | None = None) -> DiskTier | None:
    """The disk tier of this user's hosts, in the folder ``kv`` of the cache directory.

    Parameters
    ----------
    quota
        Bytes that it may take; 0: there is none. None: as ``MLXNB_DISK`` says, such as ``20GB``
        or ``0``; else a tenth of the disk, at most 50 GB.

    Raises
    ------
    InvalidOption
        ``MLXNB_DISK`` is no size.
    """
    wanted = _wanted() if quota is None else quota
    return DiskTier(cache_dir() / "kv", wanted) if wanted != 0 else None


def _wanted() -> int | None:
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise InvalidOption(f"{VARIABLE} is a size such as 20GB, or 0 for none, not {text!r}")
    return int(found[1]) * _UNITS[found[2].lower()]
