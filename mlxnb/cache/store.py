"""The prefix cache of a host: KV of past and running requests, by content, under one byte budget.

``plan`` and the rows may be asked for on any thread; what touches arrays runs on the engine's
thread. All of it holds one lock.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from mlxnb import mlxlm
from mlxnb.cache.index import Block, Match, PrefixIndex, Slot
from mlxnb.cache.live import Live
from mlxnb.cache.plan import Plan, make_plan
from mlxnb.cache.pool import BLOCK, BlockPool
from mlxnb.cache.space import Space
from mlxnb.errors import UnknownBlock
from mlxnb.records.tokens import WIDTH

log = logging.getLogger(__name__)

MAX_HOT = 8
"""Hot caches that a model keeps contiguous; older ones are carved into blocks."""


class NoRoom(Exception):
    """The budget has no room for now: what is there is in use or pinned."""


class PrefixCache:
    """Pools, index and live caches of all models.

    Parameters
    ----------
    budget
        Bytes that pools and live caches may hold together.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.index = PrefixIndex(BLOCK)
        self.lock = threading.RLock()
        self.faults = 0
        self._spaces: dict[str, Space] = {}

    # --- models -------------------------------------------------------------------------------

    def register(self, key: str, model: Any, layers: list[mlxlm.LayerShape]) -> None:
        """Make a space for a model; no ``layers``: nothing of it can be reused."""
        with self.lock:
            self._spaces[key] = Space(key, model, self.index, BlockPool(layers))

    def forget(self, key: str) -> None:
        """Drop all KV of a model."""
        with self.lock:
            self._spaces.pop(key, None)
            self.index.forget(key)

    def space(self, key: str) -> Space:
        """A model's space."""
        return self._spaces[key]

    def spaces(self) -> list[Space]:
        """All models' spaces."""
        with self.lock:
            return list(self._spaces.values())

    @property
    def nbytes(self) -> int:
        """Bytes held by pools and live caches."""
        return sum(space.nbytes for space in self._spaces.values())

    @property
    def copied_bytes(self) -> int:
        """Bytes of KV copied between live caches and blocks so far."""
        return sum(space.copied_bytes for space in self._spaces.values())

    # --- before a request is queued -----------------------------------------------------------

    def plan(self, key: str, salt: str, prompt: bytes, owner: str | None) -> Plan:
        """Decide and pin what a request will reuse; ``release`` the plan in the end."""
        with self.lock:
            space, root = self._spaces[key], self.index.root(key, salt)
            plan = make_plan(self.index, root, space.lives, prompt, owner)
            plan.pin()
            return plan

    def cold_plan(self, prompt: bytes) -> Plan:
        """The plan of a request that reuses nothing, under a root of its own."""
        root = Block("", None, b"", 0, None)
        return Plan(root, prompt, None, Match(root, None, 0))

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
                    coming = min(limit, live.will_share(plan.prompt))
                    there = min(limit, live.shares(plan.prompt))
                    if coming >= plan.matched + BLOCK and there < coming:
                        return live
            return None

    # --- the life of a sequence ---------------------------------------------------------------

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
            final.pin()
            try:
                if final.takeover:
                    live = self._take_over(space, final, mine=1 + (plan.live is final.live))
                else:
                    live = self._open(space, final)
            finally:
                final.release()
            plan.release()
            plan.live, plan.takeover, plan.matched = final.live, final.takeover, final.matched
            self._used(final)
            return live

    def _final(self, space: Space, plan: Plan) -> Plan:
        """The plan made again, with what running sequences have computed by now."""
        lives = space.lives
        final = make_plan(self.index, plan.root, lives, plan.prompt, plan.owner, running=True)
        if plan.takeover and final.matched <= plan.matched:
            final.live, final.matched, final.takeover = plan.live, plan.matched, True
        assert final.matched >= plan.matched, "a plan only grows"
        return final

    def _take_over(self, space: Space, plan: Plan, mine: int) -> Live:
        """Continue a hot cache; what others rely on, or it alone has, goes into blocks first."""
        live = plan.live
        assert live is not None and live.caches is not None, "a hot cache has its KV"
        self._reserve(live, plan.length + 1)
        if live.pins > mine or live.shares(plan.prompt) < live.length:
            space.carve(live, live.length, lambda n: self._take_slots(space, n))
        mlxlm.trim(live.caches, plan.matched)
        live.tokens = bytearray(plan.prompt[: plan.matched * WIDTH])
        live.prompt, live.owner, live.running = plan.prompt, plan.owner, True
        live.hits += 1
        return live

    def _open(self, space: Space, plan: Plan) -> Live:
        bytes_each = space.pool.token_bytes
        live = Live(space.key, plan.root, plan.owner, plan.prompt, token_bytes=bytes_each)
        space.lives.append(live)
        try:
            self._reserve(live, plan.length + 1)
            live.caches = self._restore(space, plan, live.capacity)
        except BaseException:
            space.lives.remove(live)
            raise
        live.tokens = bytearray(plan.prompt[: plan.matched * WIDTH])
        return live

    def _restore(self, space: Space, plan: Plan, capacity: int) -> mlxlm.Caches:
        """Caches that hold the plan's tokens, copied from blocks or from a live cache."""
        if plan.matched == 0:
            return mlxlm.new_caches(space.model)
        match = plan.match
        if plan.live is not None:
            plan.live.hits += 1
            space.carve(plan.live, plan.matched, lambda n: self._take_slots(space, n))
            match = self.index.match(plan.root, plan.prompt, plan.matched)
            if match.length < plan.matched:
                return space.duplicate(plan.live, plan.matched, capacity)
        return space.load(match.slots(), plan.matched, capacity)

    def reserve(self, live: Live, tokens: int) -> None:
        """Make sure that a running sequence may grow to ``tokens`` tokens.

        Raises
        ------
        NoRoom
            It may not, whatever is evicted.
        """
        with self.lock:
            self._reserve(live, tokens)

    def _reserve(self, live: Live, tokens: int) -> None:
        if tokens <= live.capacity:
            return
        wanted = live.bytes_for(tokens)
        live.pins += 1
        try:
            self.make_room(wanted - live.reserved)
        finally:
            live.pins -= 1
        live.reserved = wanted
        live.capacity = -(-tokens // mlxlm.STEP) * mlxlm.STEP

    def retire(self, live: Live, carve: bool = False) -> None:
        """Keep a finished sequence as a hot cache, or drop it if its KV and tokens disagree.

        ``carve`` puts it into blocks at once, for others to share.
        """
        with self.lock:
            assert live.caches is not None, "a finished sequence is out of its batch"
            space = self._spaces[live.key]
            if live.length == 0 or not space.rewindable:
                self.drop(live)
                return
            if mlxlm.lengths(live.caches) != {live.length}:
                self.faults += 1
                log.error("a finished cache does not hold its tokens; it is not kept")
                self.drop(live)
                return
            live.running, live.prompt, live.capacity = False, b"", 0
            live.reserved = mlxlm.nbytes(live.caches)
            self._touch(live)
            if carve:
                self._demote(space, live)
            while len(hot := space.hot()) > MAX_HOT:
                self._demote(space, hot[0])
            self.shrink()

    def drop(self, live: Live) -> None:
        """Forget a live cache."""
        with self.lock:
            space = self._spaces.get(live.key)
            if space is not None and live in space.lives:
                space.lives.remove(live)
            live.caches = live.copy = None

    def disown(self, owner: str) -> None:
        """A session is gone: anybody may continue its hot caches."""
        with self.lock:
            for live in self.lives():
                if live.owner == owner:
                    live.owner = None

    # --- the budget ---------------------------------------------------------------------------

    def make_room(self, need: int) -> None:
        """Evict until ``need`` more bytes fit.

        Raises
        ------
        NoRoom
            They never will: what is left is in use or pinned.
        """
        with self.lock:
            while self.nbytes + need > self.budget:
                if not (any(s.compact() for s in self._spaces.values()) or self._evict_one()):
                    raise NoRoom(f"{need:,} bytes more do not fit the budget of {self.budget:,}")

    def _evict_one(self) -> bool:
        """Give up what was used least recently: a leaf block or a hot cache."""
        leaf = self.index.oldest_leaf()
        hot = min((h for s in self._spaces.values() for h in s.hot()[:1]), key=_age, default=None)
        if hot is not None and (leaf is None or hot.stamp < leaf.stamp):
            space = self._spaces[hot.key]
            space.carve(hot, hot.length, lambda n: _free_slots(space, n))
            self.drop(hot)
        elif leaf is not None:
            assert leaf.slot is not None
            slot = leaf.slot
            next(s for s in self._spaces.values() if s.blocks.get(slot) is leaf).remove(leaf)
        return leaf is not None or hot is not None

    def _take_slots(self, space: Space, count: int) -> list[Slot]:
        """Up to ``count`` slots: free ones, a new slab's, evicted ones."""
        slots: list[Slot] = []
        while len(slots) < count:
            if space.pool.free:
                slots.append(space.pool.take())
            elif self.nbytes + space.pool.slab_bytes <= self.budget:
                space.pool.grow()
            elif not self._evict_one():
                break
        return slots

    def shrink(self) -> None:
        """Hold the budget, if what is in use allows it."""
        try:
            self.make_room(0)
        except NoRoom:
            log.warning("the prefix cache is over its budget: all that is left is in use")

    def _demote(self, space: Space, live: Live) -> None:
        space.carve(live, live.length, lambda n: self._take_slots(space, n))
        self.drop(live)

    # --- looking and pinning ------------------------------------------------------------------

    def lives(self) -> list[Live]:
        """All models' live caches."""
        with self.lock:
            return [live for space in self._spaces.values() for live in space.lives]

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

    def _touch(self, live: Live) -> None:
        live.last_used, live.stamp = time.time(), next(self.index.clock)

    def _used(self, plan: Plan) -> None:
        if plan.live is not None:
            self._touch(plan.live)
            return
        tail = [plan.match.tail] if plan.match.tail is not None else []
        for block in plan.match.block.chain() + tail:
            block.hits += 1
            self.index.touch(block)


def _age(live: Live) -> int:
    return live.stamp


def _free_slots(space: Space, count: int) -> list[Slot]:
    return [space.pool.take() for _ in range(min(count, space.pool.free))]
