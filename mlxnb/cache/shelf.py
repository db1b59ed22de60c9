"""The shelf: what a prefix cache takes from disk, and has written there.

What a prompt needs is read by another thread while the request waits; the engine's thread only
copies it into the pool.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version

import mlx.core as mx

from mlxnb.cache.chain import Links, deepest_state, longest
from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.tier import DiskTier
from mlxnb.cache.index import Block
from mlxnb.cache.live import Live
from mlxnb.cache.need import least_bytes
from mlxnb.cache.packed import unpack_blocks, unpack_checkpoint
from mlxnb.cache.packer import Packer
from mlxnb.cache.pool import BLOCK
from mlxnb.cache.room import Room
from mlxnb.cache.space import Space
from mlxnb.records.tokens import WIDTH, common_prefix

log = logging.getLogger(__name__)

FORMAT = 1
"""Of what is packed."""
LEAST = BLOCK
"""Tokens that must be missing in memory for the disk to be asked."""
LONGEST_S = 10.0
"""Seconds after which a read counts as given up."""
HOPE = 1.1
"""By how much a rate that was too slow is taken for better each time, so that it is tried again."""
RATE = "restored bytes a second"

Read = tuple[list[Entry], list[Entry], float]
"""Blocks and checkpoints that were read, and the seconds that it took."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is being read for a prompt: a chain up to ``position``, its blocks from ``first`` on.

    ``matched`` tokens of the prompt were in memory.
    """

    links: Links
    first: int
    position: int
    matched: int
    began: float
    read: Future[Read]

    def wait(self, timeout: float) -> bool:
        """Whether all is read, or given up, after ``timeout`` seconds at most."""
        try:
            self.read.exception(timeout)
        except TimeoutError:
            return _is_overdue(self.began)
        return True


def _is_overdue(began: float) -> bool:
    """Whether what began then is given up."""
    return time.perf_counter() - began > LONGEST_S


class Shelf:
    """The disk tier, as a prefix cache uses it.

    Parameters
    ----------
    disk
        Shared by all lives of an engine; its owner closes it.

    Attributes
    ----------
    packer
        What writes to it.
    """

    def __init__(self, disk: DiskTier) -> None:
        self.disk = disk
        self.packer = Packer(disk, self.namespace)
        self._reading: set[float] = set()
        self._namespaces: dict[str, str] = {}

    def namespace(self, key: str) -> str:
        """What a model's entries are under: its content, the device, the libraries."""
        if key not in self._namespaces:
            parts = [str(FORMAT), key, str(BLOCK), str(mx.default_device())]
            parts += [f"{name} {version(name)}" for name in ("mlx", "mlx-lm")]
            digest = blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
            self._namespaces[key] = digest
        return self._namespaces[key]

    def prepare(self, key: str) -> None:
        """Learn what is on disk of a model, so that its first prompt need not wait for that."""
        self.disk.has(self.namespace(key), ())

    # --- to the disk; on the engine's thread --------------------------------------------------

    def add(self, space: Space, live: Live) -> None:
        """Take note of a sequence that has ended, and of how fast its model computes."""
        self.packer.add(space, live)
        rate = space.rate()
        if rate is not None:
            self.disk.note(_rate(self.namespace(space.key)), rate)

    # --- from the disk; on any thread ---------------------------------------------------------

    def look(
        self, room: Room, space: Space, root: Block, prompt: bytes, matched: int
    ) -> Fetch | None:
        """Begin to read what a prompt needs beyond ``matched`` tokens, where that is worth it."""
        last = len(prompt) // WIDTH - 1
        if last - matched < LEAST or space.layout is None or self._is_stuck():
            return None
        if least_bytes(space, last) > room.limit:  # it would be read for nothing
            return None
        name = self.namespace(space.key)
        links, position = self._kept(space, root, prompt, last)
        if position - matched < LEAST or not self._worth(space, position - matched, name):
            return None
        with room.lock:
            first = space.index.match(root, prompt, position).block.end // BLOCK
        links = links.cut(position) if position % BLOCK == 0 else links
        ids = links.ids[first : -(-position // BLOCK)]
        states = [links.state(position)] if space.anchored else []
        read = _behind(lambda: self._read(name, ids, states))
        return Fetch(links, first, position, matched, time.perf_counter(), read)

    def kept(self, space: Space, root: Block, tokens: bytes) -> int:
        """How many tokens of a prompt that goes on with these could be read from disk."""
        if space.layout is None:
            return 0
        return self._kept(space, root, tokens, len(tokens) // WIDTH)[1]

    def _kept(self, space: Space, root: Block, prompt: bytes, last: int) -> tuple[Links, int]:
        """The longest chain of a prompt on disk, and up to where it is of use."""
        name = self.namespace(space.key)
        has = lambda ids: self.disk.has(name, ids)  # noqa: E731
        links = longest(root.id, prompt, has)
        position = min(last, links.length)
        return links, deepest_state(links, position, has) if space.anchored else position

    def _read(self, name: str, ids: list[str], states: list[str]) -> Read:
        began = time.perf_counter()
        self._reading.add(began)
        try:
            found = self.disk.get(name, ids), self.disk.get(name, states)
        finally:
            self._reading.discard(began)
        return *found, time.perf_counter() - began

    def _is_stuck(self) -> bool:
        """Whether a read does not come back: until it does, none other is waited for."""
        return any(_is_overdue(began) for began in list(self._reading))

    def _worth(self, space: Space, tokens: int, name: str) -> bool:
        """Whether reading so many tokens was measured to be faster than computing them."""
        computed = space.rate() or self.disk.noted(_rate(name))
        restored = self.disk.noted(RATE)
        if computed is None or restored is None:
            return True
        worth = tokens * space.pool.token_bytes / restored < tokens / computed
        if not worth:
            self.disk.note(RATE, restored * HOPE)
        return worth

    # --- into memory; on the engine's thread --------------------------------------------------

    def file(self, room: Room, space: Space, root: Block, fetch: Fetch) -> int:
        """Put what was read into the index; how many tokens that were, 0 if it is of no use."""
        try:
            return self._file(room, space, root, fetch)
        except Exception as error:  # damaged, foreign, not there any more, or too late
            log.info("nothing was taken from disk: %s", type(error).__name__)
            return 0

    def _file(self, room: Room, space: Space, root: Block, fetch: Fetch) -> int:
        blocks, states, seconds = fetch.read.result(timeout=0)
        began, tokens, end = time.perf_counter(), fetch.links.tokens, fetch.position
        if space.anchored and not states:
            return 0
        filed = self._file_blocks(room, space, root, fetch, blocks)
        if states and filed >= end:
            checkpoint = unpack_checkpoint(space.key, states[0].data, space.reach)
            room.adopt(space, root, tokens, checkpoint)
        space.tidy(root, tokens[: end * WIDTH])
        self._note_rate((*blocks, *states), seconds + time.perf_counter() - began)
        return max(0, space.index.match(root, tokens, end, space.anchored).length - fetch.matched)

    def _file_blocks(
        self, room: Room, space: Space, root: Block, fetch: Fetch, blocks: list[Entry]
    ) -> int:
        """File what is still missing of the blocks; up to where they are there then."""
        there = space.index.match(root, fetch.links.tokens, fetch.position)
        parent, begun = there.block, there.block.end // BLOCK - fetch.first
        if there.length == fetch.position or begun < 0:  # by another, or gone meanwhile
            return there.length
        pieces = [entry.tokens for entry in blocks[begun:]]
        start = parent.end * WIDTH
        if b"".join(pieces) != fetch.links.tokens[start : start + sum(map(len, pieces))]:
            return there.length
        run = unpack_blocks(space.pool, [entry.data for entry in blocks[begun:]])
        return room.file(space, parent, pieces, run)

    def _note_rate(self, entries: tuple[Entry, ...], seconds: float) -> None:
        """Note how fast it was; half of it is what was noted before."""
        nbytes = sum(entry.nbytes for entry in entries)
        if nbytes >= 2**20:
            rate = nbytes / seconds
            self.disk.note(RATE, (rate + (self.disk.noted(RATE) or rate)) / 2)

    # --- for good -----------------------------------------------------------------------------

    def forget(self, key: str, root: str, tokens: bytes, kept: int) -> None:
        """Delete what comes after the first ``kept`` tokens, up to where another goes on."""
        name, links = self.namespace(key), Links.of(root, tokens)
        self.packer.forget(links.root, tokens)
        ends = range(kept + 1, links.length + 1)
        states = [end for end in ends if self.disk.has(name, [links.state(end)])]
        tails = [end for end in ends if end % BLOCK and self.disk.has(name, [links.tail(end)])]
        if states:
            shared = self._shared(name, links, {links.tail(end) for end in tails})
            states, tails = ([e for e in some if e > shared] for some in (states, tails))
        blocks = links.ids[kept // BLOCK : links.length // BLOCK]
        short = [*map(links.state, states), *map(links.tail, tails)]
        self.disk.forget(name, [*blocks, *short])

    def evict(self, key: str, entry: str) -> bool:
        """Delete an entry with all that builds on it; False: there is none."""
        name = self.namespace(key)
        stored = self.disk.entries(name)
        if all(each.id != entry for each in stored):
            return False
        branch = [entry]
        for parent in branch:  # which grows meanwhile
            branch += [each.id for each in stored if each.parent == parent]
        self.disk.forget(name, branch)
        return True

    def _shared(self, name: str, links: Links, tails: set[str]) -> int:
        """Tokens of a chain that others on disk begin with too."""
        own, shared = set(links.ids) | tails, 0
        for stored in self.disk.entries(name):
            if stored.kind == "kv" and stored.parent in own and stored.id not in own:
                for entry in self.disk.get(name, [stored.id]):
                    rest = links.tokens[entry.start * WIDTH :]
                    shared = max(shared, entry.start + common_prefix(entry.tokens, rest))
        return shared


def _behind(work: Callable[[], Read]) -> Future[Read]:
    """Do something on a thread of its own, which the end of the process does not wait for."""
    future: Future[Read] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="mlxnb-disk-reader", daemon=True).start()
    return future


def _rate(namespace: str) -> str:
    return f"{namespace} computed tokens a second"
