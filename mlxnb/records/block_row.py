"""One row of the prefix cache's frame."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

BlockKind = Literal["hot", "kv", "window", "state"]
Tier = Literal["memory", "disk"]


@dataclass(frozen=True, slots=True)
class BlockRow:
    """Tokens ``[start, start + tokens)`` of some prompts, and the KV or state held for them.

    ``refs`` counts the turns and caches that need it now, ``hits`` how often it was reused.
    ``bytes`` is what it takes in its tier, ``preview`` the beginning of its text.
    """

    block_id: str
    parent_id: str | None
    model: str
    kind: BlockKind
    start: int
    tokens: int
    refs: int
    hits: int
    bytes: int
    tier: Tier
    last_used: dt.datetime
    pinned: bool
    preview: str
    evict_order: int | None = None
    owner: str = ""
