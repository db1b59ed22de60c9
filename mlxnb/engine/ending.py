"""How a request ends: its KV is filed, its text closed, the ledger told, then the waiter."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mlxnb.cache.live import Live
from mlxnb.cache.store import PrefixCache
from mlxnb.engine.logprobs import bad_kv
from mlxnb.engine.request import Request
from mlxnb.errors import BadLogits
from mlxnb.records.turn import FinishReason

log = logging.getLogger(__name__)

OnEnd = Callable[[Request, FinishReason], None]


class Ending:
    """Ends requests, each once.

    Parameters
    ----------
    on_end
        Called with a request and its finish reason when its KV has been filed and before its
        waiter is told.
    unfinished
        Holds every request from its arrival until its end.
    """

    def __init__(self, store: PrefixCache, on_end: OnEnd, unfinished: set[Request]) -> None:
        self._store = store
        self._unfinished = unfinished
        self._on_end = on_end

    def end(self, request: Request, reason: FinishReason) -> None:
        """File the KV of a request that reuses and did not fail; tell all who want to know."""
        if not request.begin_end():
            return
        if request.plan is not None:
            self._store.release(request.plan)
        reason = self._file(request, reason)
        try:
            reason = request.close_text(reason)
        except Exception as error:
            reason, request.error = "error", error
        self._tell(request, reason)

    def fail(self, request: Request, error: Exception) -> None:
        """End a request with an error; its KV may be unsound and is dropped."""
        request.error = error
        self.end(request, "error")

    def abort(self, request: Request, error: Exception) -> None:
        """End a request whose engine is gone, on any thread: nothing is filed or computed."""
        if request.begin_end():
            request.error, request.live = error, None
            self._tell(request, "error")

    def _file(self, request: Request, reason: FinishReason) -> FinishReason:
        """Keep its KV or drop it; the reason, which is an error if a prompt's is no numbers."""
        live, request.live = request.live, None
        if live is None:
            return reason
        try:
            if reason != "error" and not self._is_sound(request, live):
                request.error = bad_kv(request.model) if reason == "stop" else None
                reason = "error" if reason == "stop" else reason
                self._store.condemn(live)
            elif isinstance(request.error, BadLogits):
                self._store.condemn(live)
            elif request.reuse and reason != "error" and live.caches is not None:
                self._store.retire(live, carve=request.prefill_only)
            else:
                self._store.drop(live)
        except Exception:
            log.exception("the KV of a finished request could not be kept")
            self._store.drop(live)
        return reason

    def _is_sound(self, request: Request, live: Live) -> bool:
        """Logits have shown it, or it is looked at: of a prompt that was cancelled or warmed."""
        if request.generated or not request.reuse or live.caches is None:
            return True
        return self._store.is_sound(live, request.cached or 0)

    def _tell(self, request: Request, reason: FinishReason) -> None:
        request.record.decode_inputs = max(0, request.reached - len(request.prompt))
        try:
            self._on_end(request, reason)
        except Exception:
            log.exception("the end of a request could not be recorded")
        finally:
            self._unfinished.discard(request)
            request.lane = None  # it holds the model, and whoever asked may keep the request
            request.finish(reason, request.error)
