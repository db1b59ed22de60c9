"""A live cache: the KV of one sequence, while it runs and, hot, after it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mlxnb.cache.index import Block
from mlxnb.mlxlm import STEP, Caches
from mlxnb.records.tokens import WIDTH, common_prefix

if TYPE_CHECKING:
    from mlxnb.cache.checkpoint import Checkpoint, Stretch
    from mlxnb.cache.paged_sequence import PagedSequence
    from mlxnb.cache.plan import Plan

_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class Live:
    """KV of ``tokens`` (packed), in ``caches`` or, while it runs in a batch, in the batch.

    ``owner`` is the session that may continue it without a copy; None: anybody may. ``claim`` is
    the plan that will, ``plans`` are all that rely on it, ``guards`` counts who works on it now.
    ``capacity`` tokens are there or reserved for it, ``reserved`` bytes of the budget in all.
    ``prompt`` is what a running one is going to hold, for others to wait for. ``pages`` is its
    table, in a batch too, where its KV lies in the pool; its bytes are the pool's then.
    ``anchored``: it cannot be rewound, only left at one of its ``checkpoints``; it takes them at
    the positions ``marks``. ``fixed_bytes`` do not grow with its length.
    """

    key: str
    root: Block
    owner: str | None
    prompt: bytes
    token_bytes: int = 0
    capacity: int = 0
    reserved: int = 0
    caches: Caches | None = None
    copy: Callable[[], Caches] | None = None
    pages: PagedSequence | None = None
    tokens: bytearray = field(default_factory=bytearray)
    running: bool = True
    claim: Plan | None = None
    plans: list[Plan] = field(default_factory=list)
    guards: int = 0
    pinned: bool = False
    anchored: bool = False
    fixed_bytes: int = 0
    marks: tuple[int, ...] = ()
    checkpoints: list[Checkpoint] = field(default_factory=list)
    newest: Checkpoint | None = None
    hits: int = 0
    stamp: int = 0
    last_used: float = 0.0
    id: str = field(default_factory=lambda: f"h{next(_numbers)}")

    @property
    def length(self) -> int:
        """Tokens whose KV is there."""
        return len(self.tokens) // WIDTH

    @property
    def idle(self) -> bool:
        """Hot: finished, and free to be continued or carved."""
        return not self.running

    @property
    def pins(self) -> int:
        """How many rely on it."""
        return len(self.plans) + self.guards

    @property
    def claimed(self) -> bool:
        """Whether a plan will continue it in place."""
        return self.claim is not None

    def bytes_for(self, tokens: int) -> int:
        """Bytes of a contiguous cache with room for ``tokens`` tokens."""
        return whole_steps(tokens) * self.token_bytes + self.fixed_bytes

    def shares(self, prompt: bytes) -> int:
        """Tokens of ``prompt`` whose KV is here."""
        return common_prefix(bytes(self.tokens), prompt)

    def aims_at(self, prompt: bytes) -> int:
        """Tokens of ``prompt`` that are among those it set out to hold."""
        return common_prefix(self.prompt, prompt)

    # --- what others may take of it -----------------------------------------------------------

    def offers(self, prompt: bytes, limit: int) -> int:
        """Tokens of ``prompt``, at most ``limit``, that another sequence can begin with."""
        shared = min(limit, self.shares(prompt))
        if not self.anchored or (shared == self.length and self.idle):
            return shared
        return max((c.position for c in self.checkpoints if c.position <= shared), default=0)

    def will_offer(self, prompt: bytes, limit: int) -> int:
        """The same once it has computed all that it set out to."""
        aims = min(limit, self.aims_at(prompt))
        if not self.anchored:
            return aims
        return max((mark for mark in self.marks if mark <= aims), default=0)

    def continues(self, shared: int) -> bool:
        """Whether going on in place after its first tokens keeps more than it gives up."""
        return shared == self.length if self.anchored else 2 * shared >= self.length

    # --- checkpoints --------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether a checkpoint is to be taken where it is."""
        at = self.length
        return self.anchored and at in self.marks and self.checkpoint_at(at) is None

    def until_mark(self, tokens: int) -> int:
        """At most ``tokens`` more tokens, none beyond the next mark."""
        later = (mark - self.length for mark in self.marks if mark > self.length)
        return min((tokens, *later))

    def checkpoint_at(self, position: int) -> Checkpoint | None:
        """The one that was taken there."""
        return next((c for c in self.checkpoints if c.position == position), None)

    @property
    def trail(self) -> tuple[Stretch, ...]:
        """What its windows held, as far as that is still kept."""
        return () if self.newest is None or self.newest.dropped else self.newest.stretches

    def hold(self, caches: Caches) -> None:
        """Keep the KV in these caches."""
        self.caches, self.copy = caches, None
        self.pages = getattr(caches[0], "sequence", None)

    def kv(self) -> Caches:
        """The caches, copied out of the batch if it runs in one."""
        if self.caches is not None:
            return self.caches
        assert self.copy is not None, "a live cache is in its own caches or in a batch"
        return self.copy()


def whole_steps(tokens: int) -> int:
    """Tokens that a contiguous cache is sized for, so that it does not grow at each of them."""
    return -(-tokens // STEP) * STEP
