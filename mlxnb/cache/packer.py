"""What has ended, on its way to the disk.

A request's KV is packed on the engine's thread when it has ended, a piece between two steps, and
written by the disk tier's own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from mlxnb import mlxlm
from mlxnb.cache.chain import Links
from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.tier import DiskTier
from mlxnb.cache.live import Live
from mlxnb.cache.packed import pack_blocks, pack_checkpoint
from mlxnb.cache.pool import BLOCK, Run
from mlxnb.cache.room import Room
from mlxnb.cache.space import Space
from mlxnb.records.tokens import WIDTH

log = logging.getLogger(__name__)

PIECE = 2 * 2**20
"""Bytes that are packed between two steps while requests run."""


@dataclass(slots=True)
class _Ended:
    """A sequence that has ended, on its way to the disk: ``done`` tokens of it are packed."""

    space: Space
    live: Live
    tokens: bytes = field(init=False)
    done: int = 0
    _links: Links | None = None

    def __post_init__(self) -> None:
        self.tokens = bytes(self.live.tokens)

    @property
    def links(self) -> Links:
        """Its chain of ids, made once, when it is first packed."""
        if self._links is None:
            self._links = Links.of(self.live.root.id, self.tokens)
        return self._links

    def begins(self, root: str, tokens: bytes) -> bool:
        """Whether all of it is among these tokens."""
        return self.live.root.id == root and tokens.startswith(self.tokens)


class Packer:
    """Packs sequences that have ended, one after the other. On the engine's thread.

    Parameters
    ----------
    namespace
        What a model's entries are under, by its key.
    """

    def __init__(self, disk: DiskTier, namespace: Callable[[str], str]) -> None:
        self._disk, self._namespace = disk, namespace
        self._ended: deque[_Ended] = deque()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to pack."""
        return not self._ended

    def add(self, space: Space, live: Live) -> None:
        """Take note of a sequence that has ended."""
        self._ended.append(_Ended(space, live))

    def leave(self, space: Space) -> None:
        """A model goes: what is not packed yet is not kept."""
        self._ended = deque(ended for ended in self._ended if ended.space is not space)

    def forget(self, root: str, tokens: bytes) -> None:
        """Do not pack what is among these tokens."""
        self._ended = deque(e for e in self._ended if not e.begins(root, tokens))

    def work(self, room: Room, spaces: dict[str, Space], running: bool) -> bool:
        """Pack a piece of what has ended; False: there is nothing to do."""
        if not self._ended:
            return False
        ended = self._ended[0]
        space = ended.space
        try:
            with room.lock:
                there = spaces.get(space.key) is space
                more = there and self._pack(space, ended, running)
        except Exception:
            log.exception("the KV of an ended request is not kept on disk")
            more = False
        if not more:
            self._ended.popleft()
        return True

    def _pack(self, space: Space, ended: _Ended, running: bool) -> bool:
        """Hand a piece to the disk tier; False: that was all, or all that can be had."""
        links, done = ended.links, ended.done // BLOCK
        name = self._namespace(space.key)
        first = done + self._disk.has(name, islice(links.ids, done, None))
        if first >= len(links.ids):
            self._pack_checkpoints(space, ended, links, name)
            return False
        size = max(1, space.pool.token_bytes * BLOCK)
        count = min(len(links.ids) - first, max(1, (1 if running else 16) * PIECE // size))
        end = min(links.length, (first + count) * BLOCK)
        run = _run(space, ended, first * BLOCK, end)
        if run is None:
            return False
        payloads = pack_blocks(space.pool, run) or [memoryview(b"")] * count
        self._disk.put(name, links.entries(first, payloads))
        ended.done = end
        written = links.ids[first : first + count]
        return self._disk.has(name, written) == len(written)

    def _pack_checkpoints(self, space: Space, ended: _Ended, links: Links, name: str) -> None:
        """The first checkpoint of a sequence, its last ones, and one at its end."""
        if not space.anchored:
            return
        live, own = ended.live, ended.live.checkpoints
        chosen = {c.position: c for c in (*own[:1], *own[-2:])}
        there = live.caches is not None and not live.running and bytes(live.tokens) == ended.tokens
        if there and live.length not in chosen:
            chosen[live.length] = space.checkpoint(live)
        for checkpoint in space.marks(live.root, ended.tokens):
            chosen.setdefault(checkpoint.position, checkpoint)
        for position in [p for p in chosen if p <= links.length]:
            self._pack_tail(space, ended, links.cut(position), name)
            identity = links.state(position)
            if not self._disk.has(name, [identity]):
                data = pack_checkpoint(chosen[position], mlxlm.new_caches(space.model))
                whole = position // BLOCK
                parent = links.ids[whole - 1] if whole else None
                entry = Entry(identity, parent, "state", position, position, b"", data)
                self._disk.put(name, [entry])

    def _pack_tail(self, space: Space, ended: _Ended, links: Links, name: str) -> None:
        """The short block up to a checkpoint: prompts that go on otherwise lack the whole one."""
        whole = links.length // BLOCK * BLOCK
        if whole == links.length or self._disk.has(name, links.ids[-1:]):
            return
        run = _run(space, ended, whole, links.length)
        if run is not None:
            payloads = pack_blocks(space.pool, run) or [memoryview(b"")]
            self._disk.put(name, links.entries(whole // BLOCK, payloads))


def _run(space: Space, ended: _Ended, start: int, end: int) -> Run | None:
    """Keys and values of some tokens of an ended sequence; None: they are not there any more."""
    live = ended.live
    own = bytes(live.tokens[: end * WIDTH]) == ended.tokens[: end * WIDTH]
    if own and (live.caches is not None or live.pages is not None) and not live.running:
        return space.read(live, start, end)
    match = space.index.match(live.root, ended.tokens, end)
    if match.length < end:
        return None
    return space.read_blocks(match.slots()[start // BLOCK :], end - start)
