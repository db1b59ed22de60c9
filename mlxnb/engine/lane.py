"""One model's requests: waiting, in prefill, decoding. A step serves each of them a little.

After a step no request has waited longer than one prefill chunk or one decode step for its turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.cache.room import NoRoom
from mlxnb.cache.store import PrefixCache
from mlxnb.engine.admission import Admission
from mlxnb.engine.ending import Ending, OnEnd
from mlxnb.engine.group import BatchFailed, Group
from mlxnb.engine.headroom import Headroom
from mlxnb.engine.prefilling import Prefilling
from mlxnb.engine.pressure import Ease, insist, never, refusal
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime
from mlxnb.engine.solo import prefill
from mlxnb.engine.waiting import Waiting

log = logging.getLogger(__name__)

MAX_SETBACKS = 2
"""Failures of a batch after which a request runs alone."""


class Lane:
    """The requests of one loaded model.

    Parameters
    ----------
    on_end
        See `mlxnb.engine.ending.Ending`.
    elsewhere
        Whether another model runs something, whose end may make room.
    ease
        See `mlxnb.engine.pressure.Pressure.ease`.
    headroom
        Sizes the chunks of a prompt to what the device has left.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: PrefixCache,
        on_end: OnEnd,
        elsewhere: Callable[[], bool] = lambda: False,
        ease: Ease = never,
        headroom: Headroom | None = None,
    ) -> None:
        self.runtime = runtime
        self._unfinished: set[Request] = set()
        self.waiting = Waiting(runtime.info.name, self._unfinished)
        self._ending = Ending(store, on_end, self._unfinished)
        self.admission = Admission(runtime, store, self.waiting, self._ending, elsewhere, ease)
        self._ease, self._headroom = ease, headroom
        self._store = store
        self._elsewhere = elsewhere
        self._prefilling = Prefilling(runtime)
        self._groups: list[Group] = []

    @property
    def busy(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self.waiting or self._prefilling or self._groups)

    @property
    def running(self) -> int:
        """Requests in prefill and decoding."""
        return len(self._prefilling) + sum(len(g.rows) for g in self._groups)

    # --- the engine's thread ------------------------------------------------------------------

    def step(self) -> bool:
        """Admit, compute one prefill chunk, decode one token for each row; False: nothing to do."""
        if not self.busy:
            return False
        self._drop_cancelled()
        self._prefilling.begin(self.admission.admit(self.running))
        if self._prefilling:
            self._prefill(self._prefilling.take())
        for group in list(self._groups):
            self._safely(self._decode, group)
        if not self.busy:
            mx.clear_cache()  # what decoding has freed is no part of the budget
        return True

    def _drop_cancelled(self) -> None:
        for request in [r for r in self.waiting if r.cancelled]:
            self.waiting.take(request)
            self._ending.end(request, "cancelled")
        for request in [r for r in self._prefilling if r.cancelled]:
            self._prefilling.remove(request)
            self._ending.end(request, "cancelled")
        for group in list(self._groups):
            self._safely(self._sweep, group)

    # --- prefill ------------------------------------------------------------------------------

    def _prefill(self, request: Request) -> None:
        """One chunk of one request, in turn; when its prompt is done it starts to decode."""
        try:
            live, room = request.live, self._store.room
            assert live is not None
            if self.runtime.paged:  # what others came to share of it may have cost it a block
                insist(self._ease, True, room.reserve, live, len(request.tokens) + 2)
            if self._headroom is not None:
                self._headroom.size(self.runtime, live.length, room)
            left = prefill(self.runtime, request)
            if live.due:
                room.checkpoint(live)
            if not self.runtime.sized:
                insist(self._ease, True, room.count, live, mlxlm.nbytes(live.caches or []))
        except NoRoom as error:
            self._prefilling.put_back(request)
            self._make_way(error)
        except Exception as error:
            self._store.failed(self.runtime.key)
            self._ending.fail(request, error)
        else:
            if left:
                self._prefilling.put_back(request)
            else:
                self._start_decode(request)

    def _start_decode(self, request: Request) -> None:
        if request.prefill_only:
            self._ending.end(request, "stop")
            return
        try:
            self._join(request)
        except Exception as error:
            self._store.failed(self.runtime.key)
            self._ending.fail(request, error)

    def _join(self, request: Request) -> None:
        """Decode beside others where that is worth it and there is room, else apart from them."""
        for group in self._groups:
            if group.takes(request):
                try:
                    group.add(request)
                except NoRoom:
                    continue
                except Exception as error:
                    self._set_back(group, error)
                return
        group = Group(self.runtime, self._store.room)
        group.add(request)
        self._groups.append(group)

    # --- decode -------------------------------------------------------------------------------

    def _decode(self, group: Group) -> None:
        """A step of a group, whose rows must be in order before it and are after it.

        Rows that have joined take a second one, at which they give their first token: that is not
        to wait for the next chunk of somebody's prompt.
        """
        for _ in range(2 if group.joining else 1):
            self._sweep(group)
            if group.rows:
                try:
                    insist(self._ease, True, group.step)
                except NoRoom as error:
                    self._make_way(error)
        self._sweep(group)

    def _safely(self, act: Callable[[Group], None], group: Group) -> None:
        """Do something with a group; if that fails, its rows are computed again."""
        try:
            act(group)
        except BatchFailed as error:
            self._set_back(group, error.__cause__ or error)
        except Exception as error:
            self._set_back(group, error)
        if not group.rows and group in self._groups:
            self._groups.remove(group)

    def _sweep(self, group: Group) -> None:
        """Take rows out that have ended, are at fault or are not wanted any more."""
        for request in list(group.rows):
            if request.ending is None and request.fault is not None:
                request.fail(request.fault)
            if request.ending is None and request.cancelled:
                request.ending = "cancelled"
            if request.ending is not None:
                group.remove(request)
                self._finish(request)

    def _finish(self, request: Request) -> None:
        assert request.ending is not None
        self._ending.end(request, request.ending)

    def _set_back(self, group: Group, error: BaseException) -> None:
        """Compute the rows of a failed batch again, from what they had given out.

        Nothing is filed from it. A request that failed alone has no one else to blame.
        """
        alone = len(group.rows) == 1 and not group.batched
        rows, again = group.abandon(), []
        self._store.failed(self.runtime.key)
        for request in rows:
            self._drop_kv(request)
            if request.ending is None and (alone or request.fault is not None):
                request.fail(request.fault or _as_exception(error))
            if request.ending is not None:
                self._finish(request)
                continue
            request.setbacks += 1
            request.alone = request.setbacks >= MAX_SETBACKS
            again.append(request)
        if again:
            log.warning("a batch failed (%s); its rows are computed again", type(error).__name__)
            self.admission.put_back(again)

    def _drop_kv(self, request: Request) -> None:
        live, request.live = request.live, None
        if live is not None:
            self._store.drop(live)

    def _make_way(self, error: NoRoom) -> None:
        """Somebody's KV cannot grow: the newest request waits until another has ended."""
        newest = max(self._requests(), key=lambda request: request.number)
        for group in self._groups:
            if newest in group.rows:
                group.remove(newest)
        if newest in self._prefilling:
            self._prefilling.remove(newest)
        if not (self.running or self._elsewhere()):
            advice = "raise engine().budget, or ask for fewer tokens"
            self._ending.fail(newest, refusal("no room for its answer: ", advice, error))
            return
        if newest.reuse and newest.live is not None:
            live, newest.live = newest.live, None
            self._store.retire(live)
        self._drop_kv(newest)
        self.admission.make_way(newest, self.running)

    def _requests(self) -> list[Request]:
        return [*self._prefilling, *(row for group in self._groups for row in group.rows)]

    # --- the end of the lane ------------------------------------------------------------------

    def end_all(self, error: Exception) -> None:
        """End everything with an error, between steps, on the engine's thread."""
        for request in self._close(error):
            self._ending.fail(request, error)

    def abort_all(self, error: Exception) -> None:
        """End everything with an error when the engine's thread is gone, on any other."""
        for request in self._close(error):
            self._ending.abort(request, error)

    def _close(self, error: Exception) -> list[Request]:
        """Let nothing in any more; all that has not ended, in order of arrival."""
        self.waiting.close(error)
        self._prefilling.clear()
        self._groups.clear()
        return sorted(self._unfinished, key=lambda request: request.number)


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(str(error))
