"""An answer of this process's engine on its way."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from mlxnb.engine.events import Done, Event
from mlxnb.engine.request import Request
from mlxnb.errors import MlxnbError, RequestFailed
from mlxnb.records.turn import Turn
from mlxnb.sessions.reply import Reply

POLL_S = 0.5
"""Seconds between two looks at the engine's health while nothing arrives."""


class LocalReply(Reply):
    """What a session answers, from the requests that the engine runs for it.

    Parameters
    ----------
    requests
        The request, and further samples of the same prompt.
    check
        Called now and then while nothing arrives: a dead engine must fail the requests.
    settle
        Makes the turn and files it; called once, when the last request has ended.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        check: Callable[[], None],
        settle: Callable[[], Turn],
    ) -> None:
        self._requests = list(requests)
        self._check = check
        self._settle = settle
        self._lock = threading.Lock()
        self._running = {request.record.turn_id for request in requests}
        self._read = 0  # requests whose events have been read to the end

    @property
    def turn_id(self) -> str:
        """See `Reply.turn_id`."""
        return self._requests[0].record.turn_id

    # --- the engine's side --------------------------------------------------------------------

    def ended(self, request: Request) -> None:
        """One of its requests has ended; with the last one the turn is there."""
        with self._lock:
            self._running.discard(request.record.turn_id)
            if not self._running and self.turn is None:
                self.turn = self._settle()

    # --- the waiter's side --------------------------------------------------------------------

    def cancel(self) -> None:
        """See `Reply.cancel`."""
        for request in self._requests:
            request.cancelled = True

    def _events(self) -> Iterator[Event]:
        """See `Reply.events`."""
        while self._read < len(self._requests):
            event = self._next(self._requests[self._read])
            if event is None:
                break
            if isinstance(event, Done):
                self._read += 1
            elif self._read == 0:
                yield event
        self._raise()

    def _next(self, request: Request) -> Event | None:
        """The next event; None if another thread has read the last one."""
        while True:
            try:
                return request.events.get(timeout=POLL_S)
            except queue.Empty:
                if self.turn is not None:
                    return None
                self._check()

    def _raise(self) -> None:
        error = self._requests[0].error
        if error is None:
            return
        message = (
            str(error) if isinstance(error, MlxnbError) else f"{type(error).__name__}: {error}"
        )
        failed = RequestFailed(message)
        failed.turn = self.turn
        raise failed from error
