"""A session as all chats on it show it: one transcript, one turn at a time, many listeners."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mlxnb.errors import InvalidOption, MlxnbError, SessionBusy
from mlxnb.notebook.widgets.chat_calls import Pending, State, pending
from mlxnb.notebook.widgets.chat_onlook import Onlooking
from mlxnb.notebook.widgets.chat_turn import ChatTurn
from mlxnb.notebook.widgets.transcript import Exchange, exchanges, merged, meter
from mlxnb.sessions.toolbox_run import STOPPED

if TYPE_CHECKING:
    from mlxnb.records.turn import Source, Turn
    from mlxnb.sessions.engine import Engine
    from mlxnb.sessions.reply import Reply
    from mlxnb.sessions.session import Session
    from mlxnb.sessions.toolbox import Consent
    from mlxnb.sessions.toolbox_run import Run

Told = dict[str, Any]


class Listener(Protocol):
    """A chat that shows a room."""

    @property
    def listening(self) -> bool:
        """Whether it needs to be told now what other doors do."""

    def hear(self, told: Told) -> None:
        """Take a message for the front end; called on any thread, must not raise."""


class Room:
    """One session's transcript. Any thread may use it.

    Messages to listeners are in the order of what happened: all are told under one lock.

    Parameters
    ----------
    session
        The session; its turns of other doors are seen by `look`.
    engine
        Whose session it is.
    """

    def __init__(self, session: Session, engine: Engine) -> None:
        self.session, self.engine = session, engine
        self.lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._shown: list[Exchange] = []
        self._turn: ChatTurn | None = None
        self._last: Turn | None = None
        self._count = -1
        self._epoch = 0  # turns of chats that have begun or ended
        self._elsewhere = False  # a turn of another process is running
        self._seen: Onlooking | None = None  # the last turn of another door that is shown
        self._run: Run | None = None  # of another door, whose functions are called
        session.onlookers.add(self)
        self.look(deep=True)

    # --- listeners ----------------------------------------------------------------------------

    def join(self, listener: Listener) -> None:
        """Tell a listener all that happens from now on."""
        with self.lock:
            self._listeners.append(listener)

    def leave(self, listener: Listener) -> None:
        """Tell it nothing more."""
        with self.lock:
            self._listeners = [other for other in self._listeners if other is not listener]

    @property
    def joined(self) -> bool:
        """Whether there are listeners."""
        return bool(self._listeners)

    @property
    def heard(self) -> bool:
        """Whether one of them listens now."""
        return any(listener.listening for listener in self._listeners)

    def tell(self, told: Told) -> None:
        """Tell all listeners."""
        with self.lock:
            for listener in self._listeners:
                listener.hear(told)

    def told(self) -> Told:
        """All there is to show."""
        with self.lock:
            return {
                "session": self.session.name,
                "model": self.session.model,
                "busy": self.busy,
                "exchanges": [exchange.told() for exchange in self._shown],
            }

    @property
    def shown(self) -> list[Exchange]:
        """What is shown, oldest first."""
        with self.lock:
            return list(self._shown)

    # --- turns --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a turn runs, be it one of another door."""
        here = (self._turn, self._seen, self._run)
        return self._elsewhere or any(each is not None for each in here)

    def send(
        self,
        text: str,
        sampling: dict[str, Any],
        refused: Callable[[str], None],
        request: str | None = None,
    ) -> None:
        """Say something; returns at once.

        Parameters
        ----------
        refused
            Called with the reason if no turn comes of it.
        request
            The front end's own id of it.

        Raises
        ------
        SessionBusy
            A turn of a chat is running here.
        """
        with self.lock:
            if self._turn is not None or self._run is not None:
                name = self.session.name
                raise SessionBusy(f"the session {name!r} is answering; wait, or stop it")
            self._epoch += 1
            self._turn = ChatTurn(self, text, request, refused)
            self._turn.begin(sampling)

    def stop(self) -> None:
        """Stop the turn that runs, in prefill too; harmless when there is none."""
        with self.lock:
            if self._turn is not None:
                self._turn.stop()
            if self._seen is not None:
                self._seen.stop()
            if self._run is not None:
                self._run.stop()

    def answer(self, call_id: str, consent: Consent) -> None:
        """Say whether a call may be made.

        Raises
        ------
        InvalidOption
            Nobody asks about that call.
        """
        with self.lock:
            if self._turn is None or not self._turn.answer(call_id, consent):
                raise InvalidOption("this call is not asked about any more")

    def begun(self, exchange: Exchange) -> None:
        """A turn has begun: it is shown from now on."""
        with self.lock:
            self._shown.append(exchange)
            self.show(exchange)

    def changed(self, exchange: Exchange) -> None:
        """A turn is over, and another one follows by itself."""
        with self.lock:
            self._count += exchange.kept
            self.show(exchange)

    def ended(self, exchange: Exchange | None) -> None:
        """The last turn of what ran here is over; None: it never began."""
        with self.lock:
            self._epoch += 1
            self._turn, self._elsewhere = None, False
            self._last = self.session.last
            if exchange is not None:
                self._count += exchange.kept
                self.show(exchange)

    def show(self, exchange: Exchange) -> None:
        """Show a turn as it is now."""
        with self.lock:
            self.tell({"kind": "exchange", "exchange": exchange.told(), "busy": self.busy})

    def inherit(self, lost: Sequence[Exchange]) -> None:
        """Show what was said in a session of that name whose host is gone, before all else."""
        with self.lock:
            there = self._shown
            fresh = [old for old in lost if not any(old is e or old.same(e) for e in there)]
            for exchange in fresh:
                exchange.lose()
            self._shown = [*fresh, *there]
            self.tell({"kind": "transcript", **self.told()})

    # --- branches -----------------------------------------------------------------------------

    def branch(self, id: int) -> tuple[Session, str]:
        """A session with the past of one of the user's messages, and what that said.

        Raises
        ------
        InvalidOption
            No message of the user's is shown under that id.
        """
        with self.lock:
            at = next((n for n, e in enumerate(self._shown) if e.id == id), None)
            if at is None:
                raise InvalidOption("this message is not part of the session any more")
            while self._shown[at].said is None and at > 0:
                at -= 1
            said, past = self._shown[at].said, sum(e.kept for e in self._shown[:at])
        if said is None:
            raise InvalidOption("this turn has no message of yours to begin with")
        fork = self.session.fork()
        if fork.turns > past:
            fork.rewind(fork.turns - past)
        return fork, said

    # --- turns of other doors -----------------------------------------------------------------

    def reply_begun(
        self, said: str | None, after: Turn | None, reply: Reply, source: Source
    ) -> None:
        """See `Onlooker`: a turn that is none of a chat's is shown as it goes on."""
        if source == "widget" or not self.heard:
            return
        with self.lock:
            self._epoch += 1
            self._seen = seen = Onlooking(self, said, after, reply, self._seen)
            seen.begin()

    def run_changed(self, run: Run) -> None:
        """See `Onlooker`: what is asked about or called between turns of another door."""
        if run.source == "widget":
            return
        with self.lock:
            self._epoch += 1
            self._run = None if run.over else run
            exchange = self._newest
            if exchange is not None:
                exchange.pending = _pending_elsewhere(run)
                if run.over and run.stopped and exchange.calls:
                    exchange.fail(STOPPED)
                self.show(exchange)

    @property
    def _newest(self) -> Exchange | None:
        """The turn that is shown last, or will be."""
        if self._seen is not None:
            return self._seen.exchange
        return self._shown[-1] if self._shown else None

    def over(self, seen: Onlooking) -> None:
        """A turn of another door is over."""
        exchange = seen.exchange
        with self.lock:
            self._epoch += 1
            if self._seen is seen:
                self._seen = None
            if seen.sure:
                self._last = self.session.last
                self._count += exchange.kept
            self.show(exchange)

    def look(self, deep: bool = False) -> None:
        """See whether the session has gone on elsewhere, as in another notebook, and show it.

        Parameters
        ----------
        deep
            Ask the engine; otherwise only what this process knows of the session is looked at.
        """
        session, last, epoch = self.session, self.session.last, self._epoch
        if self._turn is not None or self._seen is not None or self._run is not None:
            return
        if not (deep or last is not self._last):
            return
        try:
            elsewhere, count = session.answering, session.turns
            moved = count != self._count or last is not self._last
            history = list(exchanges(session.history)) if moved else None
            took = None if last is None or last is self._last else meter(last, self.engine)
        except MlxnbError:
            return  # the host is gone or the session removed: what was said stays in sight
        with self.lock:
            if self._epoch != epoch:
                return  # a turn has begun here since
            if history is not None:
                self._renew(history, count, last, took)
            if elsewhere != self._elsewhere:
                self._elsewhere = elsewhere
                self.tell({"kind": "busy", "busy": elsewhere})

    def _renew(
        self, history: list[Exchange], count: int, last: Turn | None, took: Told | None
    ) -> None:
        there = merged(self._shown, history)
        newest = there[-1] if took is not None and there else None
        if last is not None and newest is not None and newest.meter is None:
            newest.meter = took if newest.text == last.text else None
        self._shown, self._count, self._last = there, count, last
        self.tell({"kind": "transcript", **self.told()})


def _pending_elsewhere(run: Run) -> Pending | None:
    """A call of a run in a cell, which the cell asks about itself."""
    if run.pending is None:
        return None
    call, doing = run.pending
    state: State = "cell" if doing == "ask" else "run"
    return pending(call, state)
