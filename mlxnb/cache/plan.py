"""A plan: what a request will reuse, decided and pinned before it is queued."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlxnb.cache.index import Block, Match, PrefixIndex
from mlxnb.cache.live import Live
from mlxnb.records.tokens import WIDTH

if TYPE_CHECKING:
    from mlxnb.cache.shelf import Fetch


@dataclass(slots=True, eq=False)
class Plan:
    """What ``prompt`` will reuse: ``matched`` tokens, a lower bound that may only grow.

    They lie in ``live`` if that is given, else in the blocks of ``match``. ``takeover``: the
    live cache is continued in place. ``own``: it is the asking session's. ``anchored``: reuse
    ends at checkpoints alone; ``marks`` are where new ones are to be taken. ``fetch`` is being read
    from disk for it; ``fetched`` tokens came from there.
    """

    root: Block
    prompt: bytes
    owner: str | None
    match: Match
    live: Live | None = None
    matched: int = 0
    takeover: bool = False
    own: bool = False
    pinned: bool = False
    anchored: bool = False
    marks: tuple[int, ...] = ()
    fetch: Fetch | None = None
    fetched: int = 0

    @property
    def length(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt) // WIDTH

    def pin(self) -> None:
        """Keep what the plan relies on."""
        assert not self.pinned, "a plan is pinned once"
        self.pinned = True
        if self.live is None:
            self._count(1)
            return
        self.live.plans.append(self)
        if self.takeover and self.live.claim is None:
            self.live.claim = self

    def release(self) -> None:
        """Let go of what was pinned; harmless when done twice."""
        if not self.pinned:
            return
        self.pinned = False
        if self.live is None:
            self._count(-1)
            return
        self.live.plans.remove(self)
        if self.live.claim is self:
            self.live.claim = None

    def move(self, match: Match) -> None:
        """Rely on these blocks instead, which hold as much."""
        assert match.length >= self.matched, "a plan only grows"
        self._rest_on(match)

    def lose(self, index: PrefixIndex) -> None:
        """The live cache is gone: rely on what blocks there are of it."""
        match = index.match(self.root, self.prompt, self.matched, self.anchored)
        self.matched = match.length
        self._rest_on(match)

    def _rest_on(self, match: Match) -> None:
        self.release()
        self.match, self.live, self.takeover, self.own = match, None, False, False
        self.pin()

    def _count(self, by: int) -> None:
        self.match.block.refs += by
        if self.match.tail is not None:
            self.match.tail.refs += by
        if self.match.checkpoint is not None:
            self.match.checkpoint.refs += by


def cold_plan(root: Block, prompt: bytes, owner: str | None) -> Plan:
    """The plan that reuses nothing."""
    return Plan(root, prompt, owner, Match(root, None, 0))


def make_plan(
    index: PrefixIndex,
    root: Block,
    lives: Iterable[Live],
    prompt: bytes,
    owner: str | None,
    running: bool = False,
    anchored: bool = False,
) -> Plan:
    """The plan that reuses most; of equals the one without a copy, and of those one's own.

    A live cache is continued in place where that gives up no more than it keeps. ``running=True``
    counts what running sequences have computed too. At least one token is left to compute.
    ``anchored``: reuse ends at checkpoints alone, and nothing is rewound.
    """
    limit = max(0, len(prompt) // WIDTH - 1)
    plan = Plan(root, prompt, owner, index.match(root, prompt, limit, anchored), anchored=anchored)
    plan.matched = plan.match.length
    for live in lives:
        if live.root is not root or not (live.idle or running):
            continue
        shared = live.offers(prompt, limit)
        free = live.idle and live.claim is None and live.owner in (None, owner)
        takeover = free and live.continues(shared)
        own = owner is not None and live.owner == owner
        if shared and (shared, takeover, own) > (plan.matched, plan.takeover, plan.own):
            plan.live, plan.matched, plan.takeover, plan.own = live, shared, takeover, own
    return plan
