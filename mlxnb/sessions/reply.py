"""An answer on its way: its events, and the turn that comes of it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from mlxnb.engine.events import Done, Event, Prefill
from mlxnb.engine.request import Request
from mlxnb.errors import MlxnbError, RequestFailed
from mlxnb.records.turn import Turn
from mlxnb.sessions.delta import Delta

POLL_S = 0.5
"""Seconds between two looks at the engine's health while nothing arrives."""


class Reply:
    """What a session answers, as it is generated.

    The turn is made and filed when the engine has ended it, whether anybody follows or not.

    Parameters
    ----------
    requests
        The request, and further samples of the same prompt.
    check
        Called now and then while nothing arrives: a dead engine must fail the requests.
    settle
        Makes the turn and files it; called once, when the last request has ended.

    Attributes
    ----------
    turn
        None until it has ended.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        check: Callable[[], None],
        settle: Callable[[], Turn],
    ) -> None:
        self.turn: Turn | None = None
        self._requests = list(requests)
        self._check = check
        self._settle = settle
        self._lock = threading.Lock()
        self._running = {request.record.turn_id for request in requests}
        self._read = 0  # requests whose events have been read to the end

    @property
    def turn_id(self) -> str:
        """The id of the turn that this becomes."""
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
        """Stop within one step; what is there by then stays on the turn. Any thread may call."""
        for request in self._requests:
            request.cancelled = True

    def events(self) -> Iterator[Event]:
        """Progress and pieces as they come; ends when the turn is there.

        Raises
        ------
        RequestFailed
            The turn ended in an error; it carries the partial turn.
        """
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

    def deltas(self) -> Iterator[Delta]:
        """The pieces of the answer, as users see them."""
        for event in self.events():
            if isinstance(event, Prefill | Done):
                continue
            if event.kind in ("text", "reasoning", "tool_call"):  # a call in pieces comes whole too
                text = event.text if event.kind == "text" else ""
                thought = event.text if event.kind == "reasoning" else ""
                yield Delta(text, event.kind, thought, event.call)

    def stop(self) -> Turn:
        """Cancel, wait until it has ended, and return the partial turn."""
        self.cancel()
        return self.outcome()

    def outcome(self) -> Turn:
        """Wait for the turn, be it a failed one."""
        try:
            for _ in self.events():
                pass
        except RequestFailed:
            pass
        assert self.turn is not None, "a turn has ended when its events have"
        return self.turn

    def result(self) -> Turn:
        """Wait for the turn. An interrupt cancels it and is raised again.

        Raises
        ------
        RequestFailed
            The turn ended in an error; it carries the partial turn.
        """
        try:
            for _ in self.events():
                pass
        except BaseException:
            if self.turn is None:
                self.stop()
            raise
        assert self.turn is not None, "a turn has ended when its events have"
        return self.turn
