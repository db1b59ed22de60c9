"""A widget that shows a turn from within: its tokens, its time, and the prefix cache."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
from traitlets import Dict, Unicode

from mlxnb.errors import InvalidOption, MlxnbError, UnknownBlock
from mlxnb.notebook.widgets.gone import gone
from mlxnb.notebook.widgets.inspection import inspect_turn
from mlxnb.notebook.widgets.inspector_html import page
from mlxnb.notebook.widgets.subshell import as_addressed
from mlxnb.records.colours import ORIGINS, PHASES

if TYPE_CHECKING:
    from mlxnb.records.turn import Turn
    from mlxnb.sessions.engine import Engine

HERE = Path(__file__).parent
ENDED = "the engine of the earlier turns has ended; these are those of the engine in use"


class Inspector(anywidget.AnyWidget):
    """Shows where the KV of a turn's tokens came from; made by ``mlxnb.inspect()``.

    Front ends without widgets show the same as HTML that does nothing.

    Parameters
    ----------
    engine
        Whose turns and prefix cache it shows.
    turn
        The turn, or its id; None: the last one, if there is one.
    show_text
        Whether texts are shown; None: those of the notebook's own turns. A saved notebook keeps
        what is shown.
    now
        Gives the engine to look at when this one has ended.

    Attributes
    ----------
    state
        What it shows, as JSON values; changes when it looks again.

    Raises
    ------
    UnknownTurn
        No such turn is kept.
    """

    _esm = HERE / "inspector.js"
    _css = HERE / "inspector.css"
    colours = Dict().tag(sync=True)
    state = Dict().tag(sync=True)
    key = Unicode().tag(sync=True)  # lets the front end find out whether a kernel is there

    def __init__(
        self,
        engine: Engine,
        turn: Turn | str | None = None,
        show_text: bool | None = None,
        now: Callable[[], Engine] | None = None,
    ) -> None:
        self._engine, self._given, self._show_text = engine, turn, show_text
        self._now = now or (lambda: engine)
        state = inspect_turn(engine, turn, show_text)
        both = ORIGINS | PHASES
        colours = {name: [colour.fill, colour.ink] for name, colour in both.items()}
        super().__init__(state=state, colours=colours)
        self.key = self.model_id
        as_addressed(self)
        self.on_msg(self._told)

    # --- what it does -------------------------------------------------------------------------

    def look(self, turn: Turn | str | None = None) -> None:
        """Show this turn (None: the last), and the prefix cache as it is now.

        Raises
        ------
        UnknownTurn
            No such turn is kept; what was shown stays.
        """
        self.state = inspect_turn(self._engine, turn, self._show_text)
        self._given = turn

    def refresh(self) -> None:
        """Look again, at the same turn."""
        self.look(self._again())

    def pin(self, block_id: str, pinned: bool = True) -> None:
        """See `Engine.pin`."""
        self._engine.pin(block_id, pinned)
        self.refresh()

    def evict(self, block_id: str) -> None:
        """See `Engine.evict`."""
        self._engine.evict(block_id)
        self.refresh()

    def _again(self) -> Turn | str | None:
        """The turn that is shown; the one that was given, since it knows more than its id does."""
        shown: str = self.state["turn"]
        given = getattr(self._given, "id", None)
        return self._given if given == shown else shown or None

    # --- what the front end asks for ----------------------------------------------------------

    def _told(self, _: Any, content: Any, buffers: Any) -> None:
        """Do what a button says; a mistake is said where the widget says such things."""
        try:
            if not self._moved():
                self._do(dict(content))
        except MlxnbError as error:
            if isinstance(error, UnknownBlock):  # what is shown is no more
                with suppress(MlxnbError):
                    self.refresh()
            self.state = self.state | {"said": " ".join(str(error).split())}
        finally:
            self.send({"did": content})  # where nothing has changed no state is sent

    def _moved(self) -> bool:
        """Whether the engine has ended and another one is in use, whose last turn is then shown."""
        now = self._now()
        if now is self._engine or not gone(self._engine):
            return False
        self._engine = now
        self.look()
        self.state = self.state | {"said": ENDED}
        return True

    def _do(self, asked: dict[str, Any]) -> None:
        match asked:
            case {"do": "look", "turn": str(turn)}:
                self.look(self._again() if turn == self.state["turn"] else turn)
            case {"do": "refresh"}:
                self.refresh()
            case {"do": "pin", "block": str(block), "pinned": bool(pinned)}:
                self.pin(block, pinned)
            case {"do": "evict", "block": str(block)}:
                self.evict(block)
            case _:
                raise InvalidOption("the inspector's front end asked for what it cannot do")

    # --- how it is shown ----------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Inspector(turn={self.state.get('turn')!r})"

    def _repr_html_(self) -> str:
        return page(self.state)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and for front ends without widgets the same as plain HTML."""
        made = super()._repr_mimebundle_(**kwargs)
        if made is None:
            return None
        bundle, metadata = made if isinstance(made, tuple) else (made, {})
        return {**bundle, "text/html": self._repr_html_()}, metadata
