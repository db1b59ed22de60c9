"""The prefix cache of a host: KV of past and running requests, by content, under one byte budget.

``plan`` and the rows may be asked for on any thread; what touches arrays runs on the engine's
thread. All of it holds one lock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from mlxnb import mlxlm
from mlxnb.cache.begin import begin
from mlxnb.cache.disk.tier import DiskTier
from mlxnb.cache.hand import Hand
from mlxnb.cache.index import Block, PrefixIndex, root_id
from mlxnb.cache.layout import Layout
from mlxnb.cache.live import Live
from mlxnb.cache.paged_pool import PagedPool
from mlxnb.cache.paged_space import PagedSpace
from mlxnb.cache.plan import Plan, cold_plan, make_plan
from mlxnb.cache.pool import BLOCK, BlockPool
from mlxnb.cache.room import NoRoom, Room
from mlxnb.cache.shelf import Shelf
from mlxnb.cache.sound import condemn, is_sound
from mlxnb.cache.space import Space
from mlxnb.errors import ModelUnloaded
from mlxnb.records.tokens import WIDTH

__all__ = ["MAX_HOT", "NoRoom", "PrefixCache"]

log = logging.getLogger(__name__)

MAX_HOT = 8
"""Hot caches that a model keeps; older ones are carved into blocks."""


class PrefixCache:
    """Pools, index and live caches of all models.

    Parameters
    ----------
    budget
        Bytes that pools and live caches may hold together.
    disk
        Where KV is kept beyond memory and this process; None: nowhere.
    """

    def __init__(self, budget: int, disk: DiskTier | None = None) -> None:
        self.index = PrefixIndex(BLOCK)
        self.faults = 0
        self.shelf = Shelf(disk) if disk is not None else None
        self._spaces: dict[str, Space] = {}
        self.room = Room(budget, self.index, self._spaces)
        self.lock = self.room.lock
        self.hand = Hand(self.room, self.index, self._spaces, self.shelf)

    # --- models and budget --------------------------------------------------------------------

    def register(
        self,
        key: str,
        name: str,
        model: Any,
        layout: Layout | None,
        paged: bool = False,
        rate: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Make a space for a model, or share that of one with equal content.

        No ``layout``: nothing of it can be reused. ``paged``: it attends to the pool in place.
        ``rate`` tells how many tokens a second it was measured to compute.
        """
        with self.lock:
            if key not in self._spaces:
                self._spaces[key] = self._space(key, layout, paged)
            self._spaces[key].rate = rate
            self._spaces[key].users[name] = model
        if self.shelf is not None:
            self.shelf.prepare(key)

    def forget(self, key: str, name: str) -> None:
        """Drop all KV of a model, unless one of another name has the same content."""
        with self.lock:
            users = self._spaces[key].users
            del users[name]
            if not users:
                space = self._spaces.pop(key)
                if self.shelf is not None:
                    self.shelf.packer.leave(space)
                for live in space.lives:
                    live.caches = live.copy = live.pages = None
                for checkpoint in [c for c in self.room.snapshots if c.space == key]:
                    self.room.snapshots.drop(checkpoint)
                self.index.forget(key)

    def _space(self, key: str, layout: Layout | None, paged: bool) -> Space:
        planes = layout.planes if layout is not None else []
        pool, kind = (PagedPool(planes), PagedSpace) if paged else (BlockPool(planes), Space)
        return kind(key, self.index, pool, self.room.snapshots, layout)

    def space(self, key: str) -> Space:
        """A model's space."""
        return self._spaces[key]

    def spaces(self) -> list[Space]:
        """All models' spaces."""
        with self.lock:
            return list(self._spaces.values())

    def lives(self) -> list[Live]:
        """All models' live caches."""
        return [live for space in self.spaces() for live in space.lives]

    @property
    def nbytes(self) -> int:
        """Bytes held by pools and live caches."""
        with self.lock:
            return self.room.nbytes

    @property
    def copied_bytes(self) -> int:
        """Bytes of KV copied between live caches and blocks so far."""
        return sum(space.copied_bytes for space in self.spaces())

    @property
    def budget(self) -> int:
        """Bytes that may be held; what is over a lower one goes as soon as it is not in use."""
        return self.room.budget

    @budget.setter
    def budget(self, value: int) -> None:
        with self.lock:
            self.room.budget = value
            self.room.shrink()

    # --- before a request is queued -----------------------------------------------------------

    def plan(
        self,
        key: str,
        salt: str,
        prompt: bytes,
        owner: str | None,
        promise: bool = True,
        marks: tuple[int, ...] = (),
    ) -> Plan:
        """Decide and pin what a request will reuse; ``release`` the plan in the end.

        Without a ``promise`` it keeps nothing, and takes what is there when it starts. ``marks``
        are positions that later prompts may share: where layers cannot be rewound, checkpoints
        are taken there. Raises ``ModelUnloaded`` if the model was.
        """
        with self.lock:
            space = self._spaces.get(key)
            if space is None:
                raise ModelUnloaded("the model is not loaded any more")
            if space.layout is None:
                return self.cold_plan(prompt)
            root, anchored = self.index.root(key, salt), space.anchored
            if promise:
                plan = make_plan(self.index, root, space.lives, prompt, owner, anchored=anchored)
                plan.pin()
            else:
                plan = cold_plan(root, prompt, owner)
            plan.marks = space.layout.marks(marks, plan.matched, plan.length - 1)
        if promise and self.shelf is not None:
            plan.fetch = self.shelf.look(self.room, space, root, prompt, plan.matched)
        return plan

    @staticmethod
    def cold_plan(prompt: bytes) -> Plan:
        """The plan of a request that reuses nothing, under a root of its own."""
        return cold_plan(Block("", None, b"", 0, None), prompt, None)

    def release(self, plan: Plan) -> None:
        """Let go of what a plan pinned, and of what was read for it."""
        with self.lock:
            plan.release()
            plan.fetch = None

    def awaited(self, key: str, plan: Plan) -> Live | None:
        """A running sequence that is going to hold clearly more of this prompt than it does."""
        with self.lock:
            limit = plan.length - 1
            for live in self._spaces[key].lives:
                if live.running and live.root is plan.root:
                    there = live.offers(plan.prompt, limit)
                    coming = max(there, live.will_offer(plan.prompt, limit))
                    if coming >= plan.matched + BLOCK and there < coming:
                        return live
            return None

    @staticmethod
    def fetching(plan: Plan, timeout: float) -> bool:
        """Whether what is read from disk for a plan is still to come, after so many seconds."""
        return plan.fetch is not None and not plan.fetch.wait(timeout)

    def write_behind(self, running: bool) -> bool:
        """Pack a piece of what has ended for the disk; False: there is nothing to do."""
        return self.shelf is not None and self.shelf.packer.work(self.room, self._spaces, running)

    # --- a sequence begins --------------------------------------------------------------------

    def admit(self, key: str, plan: Plan) -> Live:
        """Start a sequence: a live cache that holds ``plan.matched`` tokens, which may grow here.

        Raises
        ------
        NoRoom
            The budget cannot take it now; the plan stays pinned as it was.
        """
        with self.lock:
            space = self._spaces[key]
            if plan.fetch is not None and self.shelf is not None:
                fetch, plan.fetch = plan.fetch, None
                plan.fetched = self.shelf.file(self.room, space, plan.root, fetch)
            final = self._final(space, plan)
            try:
                live = begin(self.room, space, final, plan)
            except NoRoom:
                if plan.matched or not final.matched:
                    raise
                final = cold_plan(plan.root, plan.prompt, plan.owner)
                live = begin(self.room, space, final, plan)
            plan.release()
            plan.live, plan.match, plan.matched = final.live, final.match, final.matched
            plan.takeover, plan.own = final.takeover, final.own
            self._used(final)
            return live

    def _final(self, space: Space, plan: Plan) -> Plan:
        """The plan made again, with what running sequences have computed by now."""
        final = make_plan(
            self.index,
            plan.root,
            space.lives,
            plan.prompt,
            plan.owner,
            running=True,
            anchored=space.anchored,
        )
        if plan.takeover and final.matched <= plan.matched:
            final.live, final.matched, final.takeover = plan.live, plan.matched, True
            final.own = plan.own
        assert final.matched >= plan.matched, "a plan only grows"
        return final

    def _used(self, plan: Plan) -> None:
        if plan.live is not None:
            self._touch(plan.live)
            return
        if plan.match.checkpoint is not None:
            plan.match.checkpoint.hits += 1
            self.room.snapshots.touch(plan.match.checkpoint, time.time())
        for block in plan.match.blocks():
            block.hits += 1
            self.index.touch(block)

    def _touch(self, live: Live) -> None:
        live.last_used, live.stamp = time.time(), next(self.index.clock)

    # --- a sequence ends -----------------------------------------------------------------------

    def retire(self, live: Live, carve: bool = False) -> None:
        """Keep a finished sequence as a hot cache, or drop it if its KV and tokens disagree.

        ``carve`` puts it into blocks at once, for others to share.
        """
        with self.lock:
            assert live.caches is not None, "a finished sequence is out of its batch"
            space = self._spaces[live.key]
            if live.length == 0 or not space.reusable:
                space.drop(live)
                return
            if not mlxlm.lengths(live.caches) <= {live.length}:
                self.faults += 1
                log.error("a finished cache does not hold its tokens; it is not kept")
                space.drop(live)
                return
            self._cool(space, live)
            if self.shelf is not None:
                self.shelf.add(space, live)
            if carve:
                self._demote(space, live)
            while len(hot := space.hot()) > MAX_HOT:
                self._demote(space, hot[0])
            self.room.shrink()

    def _cool(self, space: Space, live: Live) -> None:
        assert live.caches is not None
        live.running, live.prompt = False, b""
        if space.paged:
            live.capacity = live.length
        else:
            live.capacity = mlxlm.capacity(live.caches)
            live.reserved = mlxlm.nbytes(live.caches)
        self._touch(live)

    def _demote(self, space: Space, live: Live) -> None:
        self.room.carve(live, live.length)
        space.drop(live)

    def drop(self, live: Live) -> None:
        """Forget a live cache."""
        with self.lock:
            if live.key in self._spaces:
                self._spaces[live.key].drop(live)

    def is_sound(self, live: Live, start: int) -> bool:
        """Whether all that a sequence holds after its first ``start`` tokens is numbers."""
        with self.lock:
            space = self._spaces.get(live.key)
            return space is None or is_sound(space, live, start)

    def condemn(self, live: Live) -> None:
        """Drop a sequence whose logits were no numbers, and what it shares with others of that.

        What it shares with KV on disk goes there too.
        """
        with self.lock:
            if live.key not in self._spaces:
                return
            tokens, root = bytes(live.tokens), live.root.id
            sound = condemn(self._spaces[live.key], live)
        if self.shelf is not None:
            self.shelf.forget(live.key, root, tokens, sound)

    def failed(self, key: str) -> None:
        """A call of a model failed: see to it that nothing of it is left to be computed."""
        with self.lock:
            if key in self._spaces:
                self._spaces[key].failed()

    def forget_tokens(self, key: str, salt: str, tokens: bytes, kept: int) -> None:
        """Drop the KV of a conversation after its first ``kept`` tokens, on disk too.

        What others use or share stays.
        """
        if self.shelf is not None:
            self.shelf.forget(key, root_id(key, salt), tokens, kept)
        with self.lock:
            if key in self._spaces:
                self._forget(self._spaces[key], self.index.root(key, salt), tokens, kept)

    def _forget(self, space: Space, root: Block, tokens: bytes, kept: int) -> None:
        for live in space.hot():
            if live.root is root and kept < live.shares(tokens) == live.length:
                self.room.carve(live, kept)
                space.drop(live)
        match = self.index.match(root, tokens, len(tokens) // WIDTH)
        chain = match.block.chain()
        if match.tail is not None and match.part == match.tail.length:
            chain.append(match.tail)
        shared = [live.shares(tokens) for live in space.lives if live.root is root]
        for block in reversed(chain):
            stays = block.end <= max(kept, *shared, 0)
            if stays or block.children or block.refs or block.pinned:
                break
            space.remove(block)

    def disown(self, owner: str) -> None:
        """A session is gone: anybody may continue its hot caches."""
        with self.lock:
            for live in self.lives():
                if live.owner == owner:
                    live.owner = None
