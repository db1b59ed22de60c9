"""A run of calls that goes on, as those see it who look on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from mlxnb.records.turn import Source, ToolCall
from mlxnb.sessions.toolbox import Caller, Consent, Outcome

if TYPE_CHECKING:
    from mlxnb.sessions.reply import Reply
    from mlxnb.sessions.session import Session

STOPPED = "stopped at its calls; the model reads that with what you say next"
State = Literal["ask", "run"]
"""The user is asked about a call; its function runs."""


class Run:
    """One ``Session.run``: while it goes on nobody else may speak in the session.

    Parameters
    ----------
    caller
        Asks about calls and makes them.
    changed
        Called when what is pending has changed; must not raise.

    Attributes
    ----------
    pending
        The call that is asked about or made now, if there is one.
    stopped
        It was stopped, or interrupted.
    over
        It has ended.
    """

    def __init__(
        self, session: Session, caller: Caller, source: Source, changed: Callable[[Run], None]
    ) -> None:
        self.source = source
        self.pending: tuple[ToolCall, State] | None = None
        self.over = self.stopped = False
        self._session, self._caller, self._changed = session, caller, changed
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._speaker: int | None = None

    # --- any thread ---------------------------------------------------------------------------

    @property
    def speaks(self) -> bool:
        """Whether it is this run itself that speaks, on this thread."""
        return self._speaker == threading.get_ident()

    def stop(self) -> None:
        """Stop between turns: no call is made any more.

        On the main thread a function that runs is interrupted. A question is not: JupyterLab
        would run no cell any more, as long as it is not answered there.
        """
        with self._lock:
            self.stopped = True
            runs = self.pending is not None and self.pending[1] == "run"
            if runs and self._thread == threading.main_thread().ident:
                signal.pthread_kill(self._thread, signal.SIGINT)

    # --- the thread that it is on -------------------------------------------------------------

    def reply(self, text: str | None, **options: Any) -> Reply:
        """Begin the next turn."""
        self._speaker = threading.get_ident()
        try:
            return self._session.reply(text, source=self.source, **options)
        finally:
            self._speaker = None

    def ask(self, call: ToolCall) -> Consent:
        """See `Caller.ask`."""
        with self._during(call, "ask"):
            return self._caller.ask(call)

    def carry_out(self, call: ToolCall, work: Callable[[], Outcome]) -> Outcome:
        """See `Caller.carry_out`."""
        with self._during(call, "run"):
            return self._caller.carry_out(call, work)

    def end(self) -> None:
        """It is over."""
        self.over = True
        self._changed(self)

    @contextmanager
    def _during(self, call: ToolCall, state: State) -> Iterator[None]:
        if self.stopped:
            raise KeyboardInterrupt
        self._pend((call, state))
        try:
            yield
        finally:
            self._pend(None)

    def _pend(self, pending: tuple[ToolCall, State] | None) -> None:
        with self._lock:
            self.pending = pending
        self._changed(self)
