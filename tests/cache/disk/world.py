"""Entries that can be checked, and tiers that do at once what others do after a while."""

from __future__ import annotations

import random
from hashlib import blake2b
from pathlib import Path
from typing import Any

from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.limits import Limits
from mlxnb.cache.disk.tier import DiskTier

QUICK = Limits(delay_s=0.0, poll_s=0.0, tidy_s=0.01)
SPACE = "5ca1ab1e"
PATIENCE_S = 30.0
"""Seconds after which a test gives up; none takes as long."""


def chain(
    name: str, length: int, size: int = 100, parent: str | None = None, start: int = 0
) -> list[Entry]:
    """Entries that follow each other; all that is in them is told by their ids."""
    entries: list[Entry] = []
    for number in range(start, start + length):
        entry_id = blake2b(f"{name} {number}".encode(), digest_size=16).hexdigest()
        tokens, data = contents(entry_id, size)
        entries.append(Entry(entry_id, parent, "kv", 16 * number, 16 * number + 16, tokens, data))
        parent = entry_id
    return entries


def contents(entry_id: str, size: int) -> tuple[bytes, bytes]:
    rng = random.Random(entry_id)
    return rng.randbytes(64), rng.randbytes(size)


def ids(entries: list[Entry]) -> list[str]:
    return [entry.id for entry in entries]


def sound(entries: list[Entry]) -> bool:
    """Whether they hold what entries of their ids were written with."""
    return all(
        (entry.tokens, bytes(entry.data)) == contents(entry.id, entry.nbytes) for entry in entries
    )


def plain(entries: list[Entry]) -> list[tuple[Any, ...]]:
    """Entries as they can be compared, whatever their data is held in."""
    return [(e.id, e.parent, e.kind, e.start, e.end, e.tokens, bytes(e.data)) for e in entries]


def write(tier: DiskTier, entries: list[Entry], namespace: str = SPACE) -> None:
    """Put entries into a shard of their own."""
    assert tier.put(namespace, entries) == len(entries)
    assert tier.flush(PATIENCE_S)


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in shards(folder))
