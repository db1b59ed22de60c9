"""One turn in a cell: ask, show what comes, stop on an interrupt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlxnb.notebook.interrupt import Interrupts, interrupted
from mlxnb.notebook.views import View

if TYPE_CHECKING:
    from mlxnb.records.turn import Turn
    from mlxnb.sessions.reply import Reply
    from mlxnb.sessions.session import Session


def take_turn(session: Session, text: str, view: View, sampling: dict[str, Any]) -> None:
    """Say ``text`` and show the answer; the turn is then ``session.last``, be it a partial one.

    Raises
    ------
    KeyboardInterrupt
        There was an interrupt. The engine has stopped, and what was there is shown.
    RequestFailed
        The turn ended in an error; what was there is shown.
    """
    view.of = sampling.get("n") or session.options.sampling.n or 1
    show_reply(lambda: session.reply(text, source="magic", **sampling), view)


def show_reply(begin: Callable[[], Reply], view: View) -> Turn:
    """Begin a turn and show it; raises as `take_turn`."""
    with Interrupts() as interrupts:
        reply = begin()
        interrupts.then(reply.cancel)
        try:
            for event in reply.events():
                view.show(event)
        finally:
            if reply.turn is None:
                reply.stop()
            view.close(reply.turn)
            view.show_others(reply.turn)
    if interrupts.came:
        raise interrupted("the answer was stopped; the next turn does not see it")
    assert reply.turn is not None, "a turn has ended when its events have"
    return reply.turn
