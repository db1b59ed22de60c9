"""Requests that decode together: one in its own loop, several in mlx-lm's batch.

The batch is entered when a second request comes and left when one remains. Of contiguous caches it
copies KV when a row comes or goes; the copies are counted in the rows' records. Rows of very
different length do not share such a batch: it is padded to the longest. Paged rows of any length
do, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.cache.live import Live
from mlxnb.cache.room import NoRoom, Room
from mlxnb.engine.logprobs import bad_logits, normalized
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime
from mlxnb.engine.sampling import likeliest
from mlxnb.engine.solo import Solo
from mlxnb.errors import BadLogits

WASTE = 0.25
"""Part of a padded batch that may be padding, a cache's growth step not counted."""
COUNT_EVERY = 64
"""Steps between two looks at how much KV there is, where that is not known beforehand."""


class BatchFailed(Exception):
    """mlx-lm's batch raised; its state is void and its rows must be computed again."""


class Group:
    """One request or a batch of them, each with its prompt's KV in place.

    A row whose ``ending`` is set must be taken out before the next step.
    """

    def __init__(self, runtime: Runtime, room: Room) -> None:
        self._runtime = runtime
        self._room = room
        self.rows: list[Request] = []
        self._solo: Solo | None = None
        self._batch: mlxlm.Batch | None = None
        self._uids: dict[int, Request] = {}
        self._steps = 0
        self._copied = False
        self._joining = False

    @property
    def joining(self) -> bool:
        """Whether rows have joined a batch since its last step; they give no token at the next."""
        return self._batch is not None and self._joining

    @property
    def batched(self) -> bool:
        """Whether the rows are in mlx-lm's batch now."""
        return self._batch is not None

    # --- coming -------------------------------------------------------------------------------

    def takes(self, request: Request) -> bool:
        """Whether a request may join: both can be batched, and little of the batch is padding."""
        if not self._runtime.batchable or any(r.alone for r in (request, *self.rows)):
            return False
        if self._runtime.paged:
            return True
        lengths = [_length(row) for row in (*self.rows, request)]
        padded = len(lengths) * max(lengths)
        return padded - sum(lengths) <= WASTE * padded + mlxlm.STEP

    def add(self, request: Request) -> None:
        """Start decoding a request: alone, or by joining those that are here.

        Raises
        ------
        NoRoom
            The budget does not have room for the joined batch; nothing was done.
        """
        others = bool(self.rows)
        if others and self._runtime.paged:
            self._reserve_slots([*self.rows, request])
        elif others:
            self._room.make(self._growth([*self.rows, request]))
        self.rows.append(request)
        if others and self._batch is None:
            self._enter_batch()
        if self._batch is None:
            self._solo = Solo(self._runtime, request)
            return
        self._join(request)
        self._reserve()

    def _growth(self, rows: list[Request]) -> int:
        """Bytes that a batch of these rows takes beyond what they have, while it is put together.

        It is copied a layer at a time: two layers are there twice.
        """
        lives = [row.live for row in rows if row.live is not None]
        whole = len(lives) * max(live.bytes_for(_batch_capacity(rows)) for live in lives)
        twice = 2 * whole // max(1, self._runtime.layers)
        return max(0, whole + twice - sum(live.reserved for live in lives))

    def _enter_batch(self) -> None:
        """Put the row that is here into a batch, unless the token under way is its last."""
        assert self._solo is not None
        first, settle = self._solo.request, self._solo.settle
        self._solo = None
        self._take(first, settle)
        if first.ending is None:
            self._batch = mlxlm.Batch(self._runtime.model, normalized)
            self._join(first)

    def _take(self, request: Request, read: Callable[[], int | None]) -> None:
        """Hand the next token to a request of a loop of its own; bad logits end it."""
        try:
            token = read()
        except BadLogits as error:
            request.fail(error)
            return
        if token is not None:
            self._accept(request, token)

    @staticmethod
    def _accept(request: Request, token: int) -> None:
        """Hand a token to its request; a fault in its text ends that request alone."""
        try:
            request.accept(token)
        except Exception as error:
            request.fail(error)

    def _join(self, request: Request) -> None:
        live, batch = _live(request), self._batch
        assert batch is not None and live.caches is not None
        assert request.sampler is not None
        *tokens, pending = request.tokens
        sampler = likeliest if request.sampler.greedy else request.sampler
        uid = batch.join(live.caches, tokens, pending, sampler, request.processors)
        self._uids[uid] = request
        self._joining = True
        live.caches, live.copy = None, lambda: batch.copy(uid)[0]
        request.record.batch_joins += 1
        self._count_copy(request, live.length)
        self._count_padded()

    def _count_padded(self) -> None:
        """All rows are copied when one comes or goes."""
        self._copied = True
        longest = max(map(_length, self._uids.values()), default=0)
        for row in self._uids.values():
            self._count_copy(row, longest)

    def _count_copy(self, request: Request, tokens: int) -> None:
        if not self._runtime.paged:
            request.record.copied_bytes += tokens * _live(request).token_bytes

    # --- decoding -----------------------------------------------------------------------------

    def step(self) -> None:
        """One token for each row.

        Raises
        ------
        NoRoom
            A row's KV cannot grow; nothing was done.
        BatchFailed
            The batch raised: no row's KV is good any more.
        """
        self._reserve()
        self._joining = False
        if self._batch is not None:
            self._step_batch(self._batch)
        elif self._solo is not None:
            self._take(self._solo.request, self._solo.step)
        self._steps += 1
        if self._copied:  # what was there before is free, and of sizes that do not come again
            self._copied = False
            mx.clear_cache()

    def _step_batch(self, batch: mlxlm.Batch) -> None:
        if self._runtime.paged:
            for row in self.rows:  # a table that joins is copied, and only one may hold its tail
                _live(row).pages = None
        try:
            steps = batch.step()
        except Exception as error:
            raise BatchFailed(str(error)) from error
        if self._runtime.paged:
            for uid, pages in batch.sequences().items():
                _live(self._uids[uid]).pages = pages
        for step in steps:
            request = self._uids[step.uid]
            if not step.sound:
                request.fail(_bad_logits(request))
                continue
            choice = request.choice(step.logprobs, step.token)
            if choice is not None:
                request.choices.append(choice.read(step.token))
            self._accept(request, step.token)
            request.catch_up()

    def _reserve(self) -> None:
        """Room for the next tokens: of a batch, each row takes as much as the longest."""
        if not self._runtime.sized:
            if self._steps % COUNT_EVERY == 0:
                self._count()
            return
        if self._runtime.paged:
            self._reserve_slots(self.rows)
            return
        wanted = _batch_capacity(self.rows) if self._batch else _length(self.rows[0]) + 2
        for request in self.rows:
            self._room.reserve(_live(request), wanted)

    def _reserve_slots(self, rows: list[Request]) -> None:
        """Room for the next tokens: one is fed and one is under way, in a batch maybe another."""
        more = 2 if len(rows) == 1 else 3
        for request in rows:
            self._room.reserve(_live(request), _length(request) + more)

    def _count(self) -> None:
        total = 0 if self._batch is None else self._batch.nbytes // max(1, len(self.rows))
        for request in self.rows:
            live = _live(request)
            self._room.count(live, total if live.caches is None else mlxlm.nbytes(live.caches))

    # --- going --------------------------------------------------------------------------------

    def remove(self, request: Request) -> None:
        """Take a row out, with its caches; the last but one goes back to its own loop."""
        if self._solo is not None and self._solo.request is request:
            self._solo = None
        for uid in [u for u, r in self._uids.items() if r is request]:
            self._extract(uid)
            self._count_padded()
        if self._batch is not None and len(self._uids) <= 1:
            self._leave_batch(self._batch)
        self.rows.remove(request)

    def _extract(self, uid: int) -> tuple[int, mx.array] | None:
        """Move a row's caches out of the batch; its next token, if one was drawn, and of what."""
        request = self._uids.pop(uid)
        live = _live(request)
        assert self._batch is not None
        if not self._runtime.paged:
            with suppress(NoRoom):  # for the moment in which it is there twice, if it can be had
                self._room.make(live.length * live.token_bytes)
        sound = self._batch.is_sound(uid)
        caches, tokens, pending = self._batch.leave(uid)
        live.hold(caches)
        if len(tokens) > live.length:
            request.catch_up()
        self._count_copy(request, live.length)
        if request.ending is None and not sound:
            request.fail(_bad_logits(request))
        return pending

    def _leave_batch(self, batch: mlxlm.Batch) -> None:
        for uid, request in list(self._uids.items()):
            pending = self._extract(uid)
            if request.ending is None:
                self._widen(request)
                self._solo = Solo(self._runtime, request, pending)
        batch.close()
        self._batch = None
        mx.clear_cache()  # the padded arrays: of sizes that are not asked for again

    def _widen(self, request: Request) -> None:
        """Give a row that goes on alone what is reserved for it."""
        live = _live(request)
        assert live.caches is not None
        if self._runtime.sized and not self._runtime.paged:
            mlxlm.widen(live.caches, live.capacity)

    def abandon(self) -> list[Request]:
        """Give up all rows after a failure; returns them."""
        rows, self.rows, self._uids = self.rows, [], {}
        self._solo = self._batch = None
        return rows


def _bad_logits(request: Request) -> BadLogits:
    return bad_logits(request.model, len(request.generated), bool(request.processors))


def _live(request: Request) -> Live:
    assert request.live is not None
    return request.live


def _length(request: Request) -> int:
    live = request.live
    return 0 if live is None else live.length


def _batch_capacity(rows: list[Request]) -> int:
    """Tokens that each row of a batch has room for: mlx-lm lets it grow a step at a time."""
    return max(map(_length, rows)) + mlxlm.STEP
