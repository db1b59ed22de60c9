"""An answer on its way: its events, and the turn that comes of it."""

from __future__ import annotations

import queue
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

    Parameters
    ----------
    request
        The request, queued already.
    check
        Called now and then while nothing arrives: a dead engine must fail the request.
    settle
        Called once, with the request, when it has ended: makes the turn and files it.
    others
        Requests for further samples, which are cancelled with this one.
    """

    def __init__(
        self,
        request: Request,
        check: Callable[[], None],
        settle: Callable[[Request], Turn],
        others: Sequence[Request] = (),
    ) -> None:
        self.turn: Turn | None = None
        self._request = request
        self._check = check
        self._settle = settle
        self._others = others

    @property
    def turn_id(self) -> str:
        """The id of the turn that this becomes."""
        return self._request.record.turn_id

    def cancel(self) -> None:
        """Stop within one step; what is there by then stays on the turn. Any thread may call."""
        for request in (self._request, *self._others):
            request.cancelled = True

    def events(self) -> Iterator[Event]:
        """Progress and pieces as they come; ends when the turn is there.

        Raises
        ------
        RequestFailed
            The turn ended in an error; it carries the partial turn.
        """
        while self.turn is None:
            event = self._next()
            if isinstance(event, Done):
                self.turn = self._settle(self._request)
                self._raise(event)
                return
            yield event

    def _next(self) -> Event:
        while True:
            try:
                return self._request.events.get(timeout=POLL_S)
            except queue.Empty:
                self._check()

    def _raise(self, event: Done) -> None:
        if event.error is None:
            return
        if isinstance(event.error, MlxnbError):
            message = str(event.error)
        else:
            message = f"{type(event.error).__name__}: {event.error}"
        failed = RequestFailed(message)
        failed.turn = self.turn
        raise failed from event.error

    def deltas(self) -> Iterator[Delta]:
        """The pieces of the answer, as users see them. An iterator that is closed cancels."""
        try:
            for event in self.events():
                if not isinstance(event, Prefill | Done):
                    text = event.text if event.kind == "text" else ""
                    thought = event.text if event.kind == "reasoning" else ""
                    yield Delta(text, event.kind, thought, event.call)
        finally:
            if self.turn is None:
                self.stop()

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
        assert self.turn is not None
        return self.turn

    def result(self) -> Turn:
        """Wait for the turn. An interrupt cancels it and is raised again."""
        try:
            for _ in self.events():
                pass
        except BaseException:
            if self.turn is None:
                self.stop()
            raise
        assert self.turn is not None
        return self.turn
