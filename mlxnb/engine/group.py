"""Requests that decode together: one in its own loop, several in mlx-lm's batch.

The batch is entered when a second request comes and left when one remains; both copy KV, and the
copies are counted. Rows of very different length do not share a batch: it is padded to the
longest.
"""

from __future__ import annotations

from mlxnb import mlxlm
from mlxnb.cache.store import NoRoom, PrefixCache
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime
from mlxnb.engine.solo import Solo
from mlxnb.errors import BudgetExceeded


class BatchFailed(Exception):
    """mlx-lm's batch raised; its state is void and its rows must be computed again."""


class Group:
    """One request or a batch of them, each with its prompt's KV in place."""

    def __init__(self, runtime: Runtime, store: PrefixCache) -> None:
        self._runtime = runtime
        self._store = store
        self.rows: list[Request] = []
        self._solo: Solo | None = None
        self._batch: mlxlm.Batch | None = None
        self._uids: dict[int, Request] = {}

    @property
    def batched(self) -> bool:
        """Whether the rows are in mlx-lm's batch now."""
        return self._batch is not None

    # --- coming -------------------------------------------------------------------------------

    def takes(self, request: Request) -> bool:
        """Whether a request may join: padding stays small, and the budget has room for the copy."""
        assert request.live is not None
        if not (self.rows and self._runtime.batchable):
            return False
        lengths = [r.live.length for r in self.rows if r.live] + [request.live.length]
        padded = len(lengths) * max(lengths)
        if padded - sum(lengths) > 0.25 * padded + mlxlm.STEP:
            return False
        return self._has_room(len(lengths) * (max(lengths) + 1))

    def _has_room(self, tokens: int) -> bool:
        """Room for the joined batch while its parts are still there."""
        live = self.rows[0].live
        assert live is not None
        try:
            self._store.make_room(live.bytes_for(tokens))
        except NoRoom:
            return False
        return True

    def add(self, request: Request) -> None:
        """Start decoding a request: alone, or by joining those that are here."""
        self.rows.append(request)
        if len(self.rows) == 1:
            self._solo = Solo(self._runtime, request)
            return
        if self._batch is None:
            self._batch = mlxlm.Batch(self._runtime.model, set(self._runtime.end_tokens))
            first = self.rows[0]
            self._leave_solo(first)
            if first.ending is None:
                self._join(first, first.tokens[-1])
        self._join(request, request.tokens[-1])

    def _leave_solo(self, request: Request) -> None:
        assert self._solo is not None
        token = self._solo.settle()
        self._solo = None
        if token is not None:
            self._accept(request, token)

    @staticmethod
    def _accept(request: Request, token: int) -> None:
        """Hand a token to its request; a fault in its text ends that request alone."""
        try:
            request.accept(token)
        except Exception as error:
            request.fail(error)

    def _join(self, request: Request, pending: int) -> None:
        live = request.live
        assert self._batch is not None and live is not None and live.caches is not None
        assert request.sampler is not None
        batch = self._batch
        uid = batch.join(
            live.caches,
            request.tokens[:-1],
            pending,
            max(1, request.remaining),
            request.sampler,
            list(request.processors),
        )
        self._uids[uid] = request
        self._count_copy(request)
        live.caches, live.copy = None, lambda: batch.copy(uid)[0]

    def _count_copy(self, request: Request) -> None:
        live = request.live
        assert live is not None
        request.record.batch_joins += 1
        request.record.copied_bytes += live.length * live.token_bytes

    # --- decoding -----------------------------------------------------------------------------

    def step(self) -> None:
        """One token for each row. A row whose ``ending`` is set must be removed.

        Raises
        ------
        BatchFailed
            The batch raised: no row's KV is good any more.
        """
        longest = max(r.live.length for r in self.rows if r.live is not None)
        for request in self.rows:
            self._reserve(request, longest + 2)
        if self._batch is None:
            request = self.rows[0]
            if request.ending is None and self._solo is not None:
                self._accept(request, self._solo.step())
            return
        try:
            steps = self._batch.step()
        except Exception as error:
            raise BatchFailed(str(error)) from error
        for step in steps:
            self._take(step)

    def _reserve(self, request: Request, tokens: int) -> None:
        live = request.live
        assert live is not None
        if tokens <= live.capacity:
            return
        try:
            self._store.reserve(live, tokens)
        except NoRoom as error:
            request.fail(BudgetExceeded(f"no room for more of this answer's KV: {error}"))

    def _take(self, step: mlxlm.RowStep) -> None:
        request = self._uids[step.uid]
        if request.ending is not None:
            return
        self._accept(request, step.token)
        request.catch_up()
        if step.ended:
            del self._uids[step.uid]
            assert request.live is not None
            request.live.caches, request.live.copy = step.caches, None
            request.ending = request.ending or "length"

    # --- going --------------------------------------------------------------------------------

    def remove(self, request: Request) -> None:
        """Take a row out, with its caches; the last but one goes back to its own loop."""
        self.rows.remove(request)
        if self._batch is None:
            self._solo = None
            return
        for uid in [u for u, r in self._uids.items() if r is request]:
            self._extract(uid, request)
        if len(self.rows) <= 1:
            self._leave_batch()

    def _extract(self, uid: int, request: Request) -> int | None:
        """Move a row's caches out of the batch; its next token if one was drawn."""
        live = request.live
        assert self._batch is not None and live is not None
        caches, tokens, pending = self._batch.leave(uid)
        del self._uids[uid]
        live.caches, live.copy = caches, None
        if len(tokens) > live.length:
            request.catch_up()
        request.record.copied_bytes += live.length * live.token_bytes
        return pending

    def _leave_batch(self) -> None:
        assert self._batch is not None
        for uid, request in list(self._uids.items()):
            pending = self._extract(uid, request)
            if request.ending is None:
                self._solo = Solo(self._runtime, request, pending)
        self._batch.close()
        self._batch = None

    def abandon(self) -> list[Request]:
        """Give up all rows after a failure of the batch; returns them."""
        rows, self.rows, self._uids, self._batch = self.rows, [], {}, None
        return rows
