"""The prefix cache of a host: KV of past and running requests, by content, under one byte budget.

``plan`` and the rows may be asked for on any thread; what touches arrays runs on the engine's
thread. All of it holds one lock.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from mlxnb import mlxlm
from mlxnb.cache.begin import begin
from mlxnb.cache.index import Block, PrefixIndex
from mlxnb.cache.live import Live
from mlxnb.cache.paged_pool import PagedPool
from mlxnb.cache.paged_space import PagedSpace
from mlxnb.cache.plan import Plan, cold_plan, make_plan
from mlxnb.cache.pool import BLOCK, BlockPool
from mlxnb.cache.room import NoRoom, Room
from mlxnb.cache.space import Space
from mlxnb.errors import ModelUnloaded, UnknownBlock

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
    """

    def __init__(self, budget: int) -> None:
        self.index = PrefixIndex(BLOCK)
        self.faults = 0
        self._spaces: dict[str, Space] = {}
        self.room = Room(budget, self.index, self._spaces)
        self.lock = self.room.lock

    # --- models and budget --------------------------------------------------------------------

    def register(
        self,
        key: str,
        name: str,
        model: Any,
        layers: list[mlxlm.LayerShape],
        paged: bool = False,
    ) -> None:
        """Make a space for a model, or share that of one with equal content.

        No ``layers``: nothing of it can be reused. ``paged``: it attends to the pool in place.
        """
        with self.lock:
            if key not in self._spaces:
                self._spaces[key] = _space(key, self.index, layers, paged)
            self._spaces[key].users[name] = model

    def forget(self, key: str, name: str) -> None:
        """Drop all KV of a model, unless one of another name has the same content."""
        with self.lock:
            users = self._spaces[key].users
            del users[name]
            if not users:
                for live in self._spaces.pop(key).lives:
                    live.caches = live.copy = live.pages = None
                self.index.forget(key)

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
        self, key: str, salt: str, prompt: bytes, owner: str | None, promise: bool = True
    ) -> Plan:
        """Decide and pin what a request will reuse; ``release`` the plan in the end.

        Without a ``promise`` it keeps nothing, and takes what is there when it starts. Raises
        ``ModelUnloaded`` if it was.
        """
        with self.lock:
            space = self._spaces.get(key)
            if space is None:
                raise ModelUnloaded("the model is not loaded any more")
            if not space.rewindable:
                return self.cold_plan(prompt)
            root = self.index.root(key, salt)
            if not promise:
                return cold_plan(root, prompt, owner)
            plan = make_plan(self.index, root, space.lives, prompt, owner)
            plan.pin()
            return plan

    @staticmethod
    def cold_plan(prompt: bytes) -> Plan:
        """The plan of a request that reuses nothing, under a root of its own."""
        return cold_plan(Block("", None, b"", 0, None), prompt, None)

    def release(self, plan: Plan) -> None:
        """Let go of what a plan pinned."""
        with self.lock:
            plan.release()

    def awaited(self, key: str, plan: Plan) -> Live | None:
        """A running sequence that is going to hold clearly more of this prompt than it does."""
        with self.lock:
            limit = plan.length - 1
            for live in self._spaces[key].lives:
                if live.running and live.root is plan.root:
                    there = min(limit, live.shares(plan.prompt))
                    coming = max(there, min(limit, live.aims_at(plan.prompt)))
                    if coming >= plan.matched + BLOCK and there < coming:
                        return live
            return None

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
        lives = space.lives
        final = make_plan(self.index, plan.root, lives, plan.prompt, plan.owner, running=True)
        if plan.takeover and final.matched <= plan.matched:
            final.live, final.matched, final.takeover = plan.live, plan.matched, True
            final.own = plan.own
        assert final.matched >= plan.matched, "a plan only grows"
        return final

    def _used(self, plan: Plan) -> None:
        if plan.live is not None:
            self._touch(plan.live)
            return
        tail = [plan.match.tail] if plan.match.tail is not None else []
        for block in plan.match.block.chain() + tail:
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
            if live.length == 0 or not space.rewindable:
                space.drop(live)
                return
            if mlxlm.lengths(live.caches) != {live.length}:
                self.faults += 1
                log.error("a finished cache does not hold its tokens; it is not kept")
                space.drop(live)
                return
            self._cool(space, live)
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
            live.reserved = live.capacity * live.token_bytes
        self._touch(live)

    def _demote(self, space: Space, live: Live) -> None:
        self.room.carve(live, live.length)
        space.drop(live)

    def drop(self, live: Live) -> None:
        """Forget a live cache."""
        with self.lock:
            if live.key in self._spaces:
                self._spaces[live.key].drop(live)

    def failed(self, key: str) -> None:
        """A call of a model failed: see to it that nothing of it is left to be computed."""
        with self.lock:
            if key in self._spaces:
                self._spaces[key].failed()

    def disown(self, owner: str) -> None:
        """A session is gone: anybody may continue its hot caches."""
        with self.lock:
            for live in self.lives():
                if live.owner == owner:
                    live.owner = None

    # --- pinning ------------------------------------------------------------------------------

    def pin(self, name: str, pinned: bool = True) -> None:
        """Keep a block (with all before it) or a hot cache, or let it go again.

        Raises
        ------
        UnknownBlock
            No block, or more than one, has an id that begins so.
        """
        with self.lock:
            found: list[Live | Block] = [h for h in self.lives() if h.id == name]
            found += [b for b in self.index if name and b.id.startswith(name)]
            if len(found) != 1:
                raise UnknownBlock(
                    f"{len(found) or 'no'} blocks have an id that begins with {name!r}; "
                    "ids are in the prefix cache's frame"
                )
            found[0].pinned = pinned


def _space(key: str, index: PrefixIndex, layers: list[mlxlm.LayerShape], paged: bool) -> Space:
    if paged:
        return PagedSpace(key, index, PagedPool(layers))
    return Space(key, index, BlockPool(layers))
