"""One interrupt stops a turn (C26); here at places that a kernel cannot be made to hit."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from mlxnb.engine.events import Event, Piece
from mlxnb.notebook import interrupt
from mlxnb.notebook.interrupt import Interrupts
from mlxnb.notebook.turn import take_turn
from mlxnb.notebook.views import View
from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine


def press() -> None:
    """Interrupt, in the main thread, now."""
    signal.raise_signal(signal.SIGINT)


class Recorder(View):
    """Keeps what it is shown, and does something at one piece of it."""

    def __init__(self, at: int = -1, do: Callable[[], None] = press) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.closed: list[Turn | None] = []
        self._at, self._do = at, do

    def show(self, event: Event) -> None:
        if isinstance(event, Piece):
            self.pieces.append(event.text)
            if len(self.pieces) == self._at:
                self._do()

    def close(self, turn: Turn | None) -> None:
        self.closed.append(turn)


def test_an_interrupt_stops_and_a_second_one_does_nothing() -> None:
    stopped: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.then(lambda: stopped.append(1))
        press()
        press()
    assert (stopped, interrupts.came) == ([1], True)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_before_there_is_something_to_stop_is_kept() -> None:
    stopped: list[int] = []
    with Interrupts() as interrupts:
        press()
        interrupts.then(lambda: stopped.append(1))
    assert stopped == [1]


def test_when_the_engine_is_stuck_a_late_interrupt_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "GRACE_S", -1.0)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupts():
        press()
        press()
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_leave_signals_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def run() -> None:
        with Interrupts() as interrupts:
            seen.append((signal.getsignal(signal.SIGINT) is before, interrupts.came))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(True, False)]


@pytest.mark.parametrize("at", [1, 2, 50])
def test_an_interrupt_while_a_piece_is_shown_keeps_all_that_was_there(
    engine: LocalEngine, at: int
) -> None:
    session, view = engine.session(), Recorder(at)
    with pytest.raises(KeyboardInterrupt):
        take_turn(session, "hello", view, {"max_tokens": 50_000})
    turn = session.last
    assert turn is not None and view.closed == [turn]
    assert turn.finish_reason == "cancelled" and "".join(view.pieces) == turn.text
    assert session.turns == 0
    assert session.send("again", max_tokens=2).output_tokens == 2


def raise_it(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokenPipeError("gone")])
def test_whatever_a_view_raises_the_turn_ends_and_the_session_is_free(
    engine: LocalEngine, error: BaseException
) -> None:
    session, view = engine.session(), Recorder(3, lambda: raise_it(error))
    with pytest.raises(type(error)):
        take_turn(session, "hello", view, {"max_tokens": 50_000})
    assert view.closed == [session.last]
    assert session.last is not None and session.last.finish_reason == "cancelled"
    assert session.send("again", max_tokens=2).output_tokens == 2


def test_a_turn_without_interrupt_ends_quietly(engine: LocalEngine) -> None:
    session, view = engine.session(), Recorder()
    take_turn(session, "hello", view, {"max_tokens": 20})
    assert session.last is not None and view.closed == [session.last]
    assert "".join(view.pieces) == session.last.text
