"""A sequence begins: its live cache, with what its plan reuses in it.

Raises ``NoRoom`` and leaves everything as it was, where the budget cannot take it now.
"""

from __future__ import annotations

from mlxnb import mlxlm
from mlxnb.cache.live import Live
from mlxnb.cache.plan import Plan
from mlxnb.cache.room import NoRoom, Room
from mlxnb.cache.space import Space
from mlxnb.records.tokens import WIDTH


def begin(room: Room, space: Space, plan: Plan, asked: Plan) -> Live:
    """A running live cache that holds ``plan.matched`` tokens, with room for the rest.

    ``asked`` is the plan as it was queued; what it holds on to is this request's own.
    """
    plan.pin()
    try:
        if plan.takeover:
            return _take_over(room, space, plan, asked)
        return _open(room, space, plan)
    finally:
        plan.release()


def _take_over(room: Room, space: Space, plan: Plan, asked: Plan) -> Live:
    """Continue a hot cache in place; what it alone has beyond the prompt goes into blocks."""
    live = plan.live
    assert live is not None and live.caches is not None, "a hot cache has its KV"
    if plan.matched < live.length:
        _set_aside(room, space, live, [p for p in live.plans if p not in (plan, asked)])
    room.reserve(live, plan.length + 2, plan.matched)
    mlxlm.trim(live.caches, plan.matched)
    live.tokens = bytearray(plan.prompt[: plan.matched * WIDTH])
    live.prompt, live.owner, live.running = plan.prompt, plan.owner, True
    live.hits += 1
    return live


def _set_aside(room: Room, space: Space, live: Live, others: list[Plan]) -> None:
    """Carve all of a hot cache; what others were promised of it must be among it."""
    filed = room.carve(live, live.length)
    if filed < max((plan.matched for plan in others), default=0):
        raise NoRoom("what another request will reuse of a hot cache does not fit into blocks")
    for plan in others:
        plan.move(space.index.match(plan.root, plan.prompt, plan.matched))


def _open(room: Room, space: Space, plan: Plan) -> Live:
    """A new live cache, with a copy of what the plan reuses, or over the same blocks."""
    bytes_each = space.pool.token_bytes
    live = Live(space.key, plan.root, plan.owner, plan.prompt, token_bytes=bytes_each)
    space.lives.append(live)
    try:
        room.reserve(live, plan.length + 2, plan.matched)
        live.hold(_restored(room, space, plan, live.capacity))
    except BaseException:
        space.drop(live)
        raise
    live.tokens = bytearray(plan.prompt[: plan.matched * WIDTH])
    return live


def _restored(room: Room, space: Space, plan: Plan, capacity: int) -> mlxlm.Caches:
    """Caches that hold the plan's tokens, of blocks or of a live cache."""
    if plan.matched == 0:
        return space.fresh(capacity)
    match = plan.match
    if plan.live is not None:
        plan.live.hits += 1
        if room.carve(plan.live, plan.matched) < plan.matched:
            return space.duplicate(plan.live, plan.matched, capacity)
        match = space.index.match(plan.root, plan.prompt, plan.matched)
    return space.load(match.slots(), plan.matched, capacity)
