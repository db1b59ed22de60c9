"""What the engine holds, as rows for frames, and ended requests as turns."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mlxnb.cache.checkpoint import Checkpoint
from mlxnb.cache.index import Block
from mlxnb.cache.live import Live
from mlxnb.cache.plan import Plan
from mlxnb.cache.pool import SLAB
from mlxnb.cache.space import Space
from mlxnb.engine.core import Core
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime
from mlxnb.models.discover import discover
from mlxnb.models.info import ModelInfo
from mlxnb.records.alternative import Alternative
from mlxnb.records.block_row import BlockRow
from mlxnb.records.session_row import SessionRow
from mlxnb.records.tokens import WIDTH, common_prefix, pack, unpack
from mlxnb.records.turn import CacheStatus, FinishReason, Turn, TurnRecord, Usage
from mlxnb.sessions.failure import row_text
from mlxnb.sessions.session import Session
from mlxnb.sessions.spelled import LOST, spelled

PREVIEW = 40
"""Characters of a block's text that its row shows."""

Decode = Callable[[Sequence[int]], str]


# --- turns ------------------------------------------------------------------------------------


def fill(record: TurnRecord, request: Request, reason: FinishReason, ended: float) -> None:
    """Write into a turn's row what became of its request."""
    record.usage = Usage(
        prompt_tokens=len(request.prompt),
        cached_tokens=request.cached or 0,
        output_tokens=len(request.generated),
        reasoning_tokens=request.reasoning_tokens,
    )
    record.timing = request.clock.timing(ended)
    record.cache = request.status or _status(request.plan, request.cached or 0)
    record.finish_reason = reason
    record.output = array("I", request.generated)
    record.error = row_text(record.source, reason, request.error)


def _status(plan: Plan | None, cached: int) -> CacheStatus:
    if not cached or plan is None:
        return "fresh"
    return "hit" if plan.own else "prefix_hit"


def turn_of(request: Request, decode: Decode | None = None) -> Turn:
    """An ended request as the user sees it.

    Parameters
    ----------
    decode
        Says what tokens stand for; None: those that could have been drawn are left out.
    """
    record, machine = request.record, request.machine
    return Turn(
        id=record.turn_id,
        text=machine.text,
        reasoning=machine.reasoning,
        tool_calls=list(machine.tool_calls),
        finish_reason=record.finish_reason,
        stop_sequence=machine.stop_sequence,
        usage=record.usage,
        timing=record.timing,
        tokens=list(request.generated),
        model=record.model,
        session=record.session,
        error=record.error,
        alternatives=[] if decode is None else _worded(request, decode),
    )


def _worded(request: Request, decode: Decode) -> list[list[Alternative]]:
    """What the tokens were drawn from, with their texts."""
    texts: dict[int, str] = {}
    for each in itertools.chain.from_iterable(request.choices):
        if each.token_id not in texts:
            texts[each.token_id] = decode([each.token_id])
    return [
        [dataclasses.replace(each, text=texts[each.token_id]) for each in place]
        for place in request.choices
    ]


# --- the prefix cache -------------------------------------------------------------------------


def block_rows(core: Core, with_text: Callable[[], bool]) -> Iterator[BlockRow]:
    """A row a hot cache and a block, those of a model together.

    ``with_text``, whether they have previews, is asked once the blocks are known: a turn that
    begins meanwhile is among those it looks at.
    """
    runtimes = {runtime.key: runtime for runtime in core.runtimes()}
    with core.store.lock:
        found = [
            (row, tokens, runtimes[space.key])
            for space in core.store.spaces()
            if space.key in runtimes
            for row, tokens in _rows(space, runtimes[space.key].info.name)
        ]
        order = {name: n for n, name in enumerate(core.store.hand.order(), start=1)}
    shown = with_text()
    for row, tokens, runtime in found:  # decoding takes its time: without the lock
        preview = _preview(tokens, readable(runtime.tokenizer)) if shown else ""
        yield dataclasses.replace(row, preview=preview, evict_order=order.get(row.block_id))
    for runtime in runtimes.values():
        yield from _disk_rows(core, runtime)


def _disk_rows(core: Core, runtime: Runtime) -> Iterator[BlockRow]:
    """What is on disk of a model and not in memory."""
    shelf, index = core.store.shelf, core.store.index
    if shelf is None:
        return
    for stored in shelf.disk.entries(shelf.namespace(runtime.key)):
        if index.get(stored.id) is None:
            yield BlockRow(
                block_id=stored.id,
                parent_id=stored.parent,
                model=runtime.info.name,
                kind="kv" if stored.kind == "kv" else "state",
                start=stored.start,
                tokens=stored.end - stored.start,
                refs=0,
                hits=0,
                bytes=stored.nbytes,
                tier="disk",
                last_used=_instant(stored.last_used),
                pinned=False,
                preview="",
            )


def _rows(space: Space, model: str) -> Iterator[tuple[BlockRow, bytes]]:
    """Rows without a preview, and the packed tokens that it shows the beginning of."""
    for live in space.lives:
        yield _hot_row(live, space, model), bytes(live.tokens[: WIDTH * PREVIEW])
    for block in sorted(space.blocks.values(), key=lambda b: (b.start, b.id)):
        yield _kv_row(block, space, model), block.tokens
    own = [c for c in space.snapshots if c.space == space.key]
    for checkpoint in sorted(own, key=lambda c: (c.position, c.id)):
        yield _checkpoint_row(checkpoint, space, model), checkpoint.key


def _hot_row(live: Live, space: Space, model: str) -> BlockRow:
    return BlockRow(
        block_id=live.id,
        parent_id=None,
        model=model,
        kind="hot",
        start=0,
        tokens=live.length,
        refs=live.pins + live.running,
        hits=live.hits,
        bytes=space.bytes_of(live),
        tier="memory",
        last_used=_instant(live.last_used or time.time()),
        pinned=live.pinned,
        preview="",
        owner=live.owner or "",
    )


def _kv_row(block: Block, space: Space, model: str) -> BlockRow:
    parent = block.parent
    return BlockRow(
        block_id=block.id,
        parent_id=parent.id if parent is not None and parent.parent is not None else None,
        model=model,
        kind="kv",
        start=block.start,
        tokens=block.length,
        refs=block.refs,
        hits=block.hits,
        bytes=space.pool.slab_bytes // SLAB,
        tier="memory",
        last_used=_instant(block.last_used),
        pinned=block.pinned,
        preview="",
    )


def _checkpoint_row(checkpoint: Checkpoint, space: Space, model: str) -> BlockRow:
    """``start`` is the first position whose keys it has; of a mere state the one it stands at."""
    node = checkpoint.node if checkpoint.node is not None and checkpoint.node.parent else None
    parent = node.id if node is not None else None
    return BlockRow(
        block_id=checkpoint.id,
        parent_id=parent if checkpoint.live is None else checkpoint.live.id,
        model=model,
        kind=checkpoint.kind,
        start=checkpoint.start,
        tokens=checkpoint.position - checkpoint.start,
        refs=checkpoint.refs,
        hits=checkpoint.hits,
        bytes=space.snapshots.share_of(checkpoint),
        tier="memory",
        last_used=_instant(checkpoint.last_used),
        pinned=checkpoint.pinned,
        preview="",
    )


def _preview(tokens: bytes, decode: Decode) -> str:
    text = decode(unpack(tokens))
    return text if len(text) <= PREVIEW else text[: PREVIEW - 1] + "…"


def _instant(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


# --- sessions and models ----------------------------------------------------------------------


def session_rows(core: Core, sessions: Iterable[Session]) -> Iterator[SessionRow]:
    """A row a session; ``cached_tokens`` is what its next turn would reuse now."""
    for session in sessions:
        tokens, exact = session.tokens, session.options.history == "exact"
        hot, cached = _held(core, session, pack(tokens))
        yield SessionRow(
            name=session.name,
            model=session.model,
            turns=session.turns,
            tokens=len(tokens) if exact else None,
            cached_tokens=cached if exact else None,
            hot=hot,
            history=session.options.history,
            forked_from=session.forked_from,
            created_at=session.created_at,
            last_used=session.last_used,
        )


def _held(core: Core, session: Session, packed: bytes) -> tuple[bool, int]:
    """Whether a session's hot cache is there, and how many of its tokens have their KV."""
    runtime = next((r for r in core.runtimes() if r.info.name == session.model), None)
    if runtime is None:
        return False, 0
    with core.store.lock:
        root = core.store.index.root(runtime.key, session.options.cache_salt)
        cached = core.store.index.match(root, packed, len(packed) // WIDTH).length
        space = core.store.space(runtime.key)
        lives = [h for h in space.lives if h.root is root]
        shared = [common_prefix(bytes(h.tokens), packed) for h in lives]
    shelf = core.store.shelf
    kept = 0 if shelf is None else shelf.kept(space, root, packed)
    return any(h.owner == session.name for h in lives), max([cached, kept, *shared])


def model_info(runtime: Runtime) -> ModelInfo:
    """Facts about a loaded model, with what was tried out on it."""
    return dataclasses.replace(
        runtime.info,
        loaded=True,
        batchable=runtime.batchable,
        reuse=runtime.reuse,
    )


def all_models(core: Core) -> list[ModelInfo]:
    """The loaded models, and what else is on this machine."""
    loaded = [model_info(runtime) for runtime in core.runtimes()]
    names = {info.name for info in loaded}
    return loaded + [info for info in discover() if info.name not in names]


def decoder(core: Core, fingerprint: str) -> Decode:
    """Token ids → text for a turn of that model; ids in brackets if it is not loaded any more."""
    for runtime in core.runtimes():
        if runtime.key == fingerprint:
            return readable(runtime.tokenizer)
    return _numbers


def readable(tokenizer: Any) -> Decode:
    """Token ids → text; ids in brackets where the tokenizer fails: that spoils no frame.

    A token alone that is a part of a character is told by its bytes.
    """

    def decode(tokens: Sequence[int]) -> str:
        try:
            text = str(tokenizer.decode(tokens))
            parts = spelled(tokenizer, tokens[0]) if LOST in text and len(tokens) == 1 else None
        except Exception:
            return _numbers(tokens)
        return text if parts is None else parts

    return decode


def _numbers(tokens: Sequence[int]) -> str:
    return " ".join(f"[{token}]" for token in tokens)
