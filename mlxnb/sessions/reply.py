"""An answer on its way: its events, and the turn that comes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from mlxnb.engine.events import Done, Event, Prefill
from mlxnb.errors import RequestFailed
from mlxnb.records.turn import Turn
from mlxnb.sessions.delta import Delta


class Reply(ABC):
    """What a session answers, as it is generated.

    The turn is made and filed when the engine has ended it, whether anybody follows or not.

    Attributes
    ----------
    turn
        None until it has ended.
    """

    turn: Turn | None = None
    _taps: tuple[Callable[[Event], None], ...] = ()

    @property
    @abstractmethod
    def turn_id(self) -> str:
        """The id of the turn that this becomes."""

    @abstractmethod
    def cancel(self) -> None:
        """Stop within one step; what is there by then stays on the turn. Any thread may call."""

    @abstractmethod
    def _events(self) -> Iterator[Event]:
        """See ``events``."""

    def tap(self, tell: Callable[[Event], None]) -> None:
        """Tell of each event that ``events`` gives to anybody from now on; must not raise."""
        self._taps = (*self._taps, tell)

    def events(self) -> Iterator[Event]:
        """Progress and pieces as they come; ends when the turn is there.

        Raises
        ------
        RequestFailed
            The turn ended in an error; it carries the partial turn.
        """
        for event in self._events():
            for tell in self._taps:
                tell(event)
            yield event

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
