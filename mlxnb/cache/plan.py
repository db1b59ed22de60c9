"""A plan: what a request will reuse, decided and pinned before it is queued."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mlxnb.cache.index import Block, Match, PrefixIndex
from mlxnb.cache.live import Live
from mlxnb.records.tokens import WIDTH


@dataclass(slots=True)
class Plan:
    """What ``prompt`` will reuse: ``matched`` tokens, a lower bound that may only grow.

    They lie in ``live`` if that is given, else in the blocks of ``match``. ``takeover``: the
    live cache is continued in place. ``own``: it is the asking session's.
    """

    root: Block
    prompt: bytes
    owner: str | None
    match: Match
    live: Live | None = None
    matched: int = 0
    takeover: bool = False
    released: bool = False

    @property
    def length(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt) // WIDTH

    @property
    def own(self) -> bool:
        """Whether what is reused is the session's own live cache."""
        return self.takeover and self.live is not None and self.live.owner is not None

    def pin(self) -> None:
        """Keep what the plan relies on."""
        if self.live is not None:
            self.live.pins += 1
            self.live.claimed = self.live.claimed or self.takeover
            return
        self.match.block.refs += 1
        if self.match.tail is not None:
            self.match.tail.refs += 1

    def release(self) -> None:
        """Let go of what was pinned; harmless when done twice."""
        if self.released:
            return
        self.released = True
        if self.live is not None:
            self.live.pins -= 1
            if self.takeover:
                self.live.claimed = False
            return
        self.match.block.refs -= 1
        if self.match.tail is not None:
            self.match.tail.refs -= 1


def make_plan(
    index: PrefixIndex,
    root: Block,
    lives: Iterable[Live],
    prompt: bytes,
    owner: str | None,
    running: bool = False,
) -> Plan:
    """The plan that reuses most; the session's own live cache wins a tie, since it costs no copy.

    ``running=True`` counts what running sequences have computed too. At least one token of a
    prompt is left to compute.
    """
    limit = max(0, len(prompt) // WIDTH - 1)
    plan = Plan(root, prompt, owner, index.match(root, prompt, limit))
    plan.matched = plan.match.length
    for live in lives:
        if live.root is not root or not (live.idle or running):
            continue
        shared = min(limit, live.shares(prompt))
        takeover = live.idle and not live.claimed and live.owner in (None, owner)
        better = (shared, takeover) > (plan.matched, plan.takeover)
        if shared and better:
            plan.live, plan.matched, plan.takeover = live, shared, takeover
    return plan
