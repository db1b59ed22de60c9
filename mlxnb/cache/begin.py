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
        return _open(room, space, plan, asked.marks)
    finally:
        plan.release()


def _take_over(room: Room, space: Space, plan: Plan, asked: Plan) -> Live:
    """Continue a hot cache in place; what it alone has beyond the prompt goes into blocks."""
    live = plan.live
    assert live is not None and live.caches is not None, "a hot cache has its KV"
    others = [p for p in live.plans if p not in (plan, asked)]
    if plan.matched < live.length:
        _set_aside(room, space, live, others)
    room.reserve(live, plan.length + 2, plan.matched)
    if live.anchored and not room.checkpoint(live) and others:
        raise NoRoom("what another request will reuse of a hot cache cannot be kept for it")
    mlxlm.trim(live.caches, plan.matched)
    live.tokens = bytearray(plan.prompt[: plan.matched * WIDTH])
    live.prompt, live.owner, live.running = plan.prompt, plan.owner, True
    live.marks = _after(plan.matched, asked.marks)
    live.hits += 1
    return live


def _set_aside(room: Room, space: Space, live: Live, others: list[Plan]) -> None:
    """Carve all of a hot cache; what others were promised of it must be among it."""
    filed = room.carve(live, live.length)
    if filed < max((plan.matched for plan in others), default=0):
        raise NoRoom("what another request will reuse of a hot cache does not fit into blocks")
    for plan in others:
        plan.move(space.index.match(plan.root, plan.prompt, plan.matched))


def _open(room: Room, space: Space, plan: Plan, marks: tuple[int, ...]) -> Live:
    """A new live cache, with a copy of what the plan reuses, or over the same blocks."""
    live = space.open(plan, _after(plan.matched, marks))
    space.lives.append(live)
    try:
        room.reserve(live, plan.length + 2, plan.matched)
        _restore(room, space, plan, live)
    except BaseException:
        space.drop(live)
        raise
    live.tokens = bytearray(plan.prompt[: plan.matched * WIDTH])
    return live


def _restore(room: Room, space: Space, plan: Plan, live: Live) -> None:
    """Give a live cache the plan's tokens, of blocks or of another live cache."""
    if plan.matched == 0:
        live.hold(space.fresh(live.capacity))
        return
    match = plan.match
    if plan.live is not None:
        plan.live.hits += 1
        others = [other for other in plan.live.plans if other is not plan]
        filed = room.carve(plan.live, plan.matched)
        _follow(space, plan.live, others)
        match = space.index.match(plan.root, plan.prompt, plan.matched, space.anchored)
        if min(filed, match.length) < plan.matched:
            live.hold(space.duplicate(plan.live, plan.matched, live.capacity))
            return
    live.hold(space.load(match, live.capacity))
    live.newest = match.checkpoint


def _follow(space: Space, live: Live, plans: list[Plan]) -> None:
    """Let plans rely on the checkpoints that went from a live cache into the index."""
    there = {live.length, *(checkpoint.position for checkpoint in live.checkpoints)}
    for plan in plans:
        if live.anchored and plan.matched not in there:
            plan.move(space.index.match(plan.root, plan.prompt, plan.matched, anchored=True))


def _after(position: int, marks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(mark for mark in marks if mark > position)
