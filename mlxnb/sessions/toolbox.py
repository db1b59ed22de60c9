"""The Python functions that a session's model may call, and what became of its calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, Protocol

from mlxnb.errors import InvalidOption
from mlxnb.records.turn import ToolCall
from mlxnb.sessions.function import Function, cut
from mlxnb.sessions.toolbox_calls import Called

Consent = Literal["yes", "no", "always"]
"""``always``: for this call and all further ones of its function."""
ROUNDS = 8
"""How often in one run calls are answered, where nobody says otherwise."""
ROWS = 10_000
"""How many calls are kept; older ones are dropped."""
SHORT = 200
"""Characters of a result that is not cut further, its note included."""
INTERRUPTED = "interrupted by the user before it was done"
REFUSED = "the user refused this call"


Outcome = tuple[str, bool, float]
"""What a function returned or raised, whether it raised, and for how many seconds it ran."""


class Caller(Protocol):
    """Who makes calls."""

    def ask(self, call: ToolCall) -> Consent:
        """Ask the user whether a call may be made."""

    def carry_out(self, call: ToolCall, work: Callable[[], Outcome]) -> Outcome:
        """Do the work where it is to be done, which makes the call."""


class Toolbox:
    """Functions by their names.

    Attributes
    ----------
    rounds
        How often in one run calls are answered at most, where the run does not say.
    calls
        What came of the calls, oldest first.
    """

    def __init__(self) -> None:
        self.rounds = ROUNDS
        self._functions: dict[str, Function] = {}
        self.calls: list[Called] = []

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[Function]:
        return iter(list(self._functions.values()))

    def __len__(self) -> int:
        return len(self._functions)

    def copy(self) -> Toolbox:
        """The same functions, for a fork; no calls."""
        other = Toolbox()
        other.rounds, other._functions = self.rounds, dict(self._functions)
        return other

    def add(self, function: Function) -> None:
        """Take a function in, in the place of one of the same name."""
        self._functions[function.name] = function

    def remove(self, name: str) -> None:
        """Take one out; raises as ``check``."""
        self.check(name)
        del self._functions[name]

    def check(self, name: str) -> None:
        """Raise ``InvalidOption`` where no function of that name is there."""
        if name not in self._functions:
            there = ", ".join(self._functions) or "none"
            raise InvalidOption(f"no function {name!r} is registered (there are: {there})")

    @property
    def asking(self) -> list[str]:
        """The names of functions that are asked about before they are called."""
        return [function.name for function in self if function.confirm]

    def answer(self, call: ToolCall, turn_id: str, caller: Caller) -> Called:
        """Make a call, if it may be made. What goes wrong is its error; an interrupt is raised."""
        return self._noted(self._answered(call, turn_id, caller))

    def drop(self, call: ToolCall, turn_id: str, why: str) -> Called:
        """Take note of a call that is not made, or not to its end."""
        return self._noted(Called(call.id, turn_id, call.name, call.arguments, error=why))

    def shorten(self, turn_id: str, most: int) -> Called | None:
        """Cut the longest result of a turn's calls by half, or to ``most`` characters.

        Returns
        -------
        Called or None
            What is known of that call now; None: all are short.
        """
        longest = max(self.of_turn(turn_id), key=lambda called: len(called.told), default=None)
        if longest is None or len(longest.told) <= SHORT:
            return None
        shorter = longest.cut(min(len(longest.told) // 2, most))
        self.calls = [shorter if called is longest else called for called in self.calls]
        return shorter

    def of_turn(self, turn_id: str) -> list[Called]:
        """What is known of the calls of a turn."""
        return [called for called in self.calls if called.turn_id == turn_id]

    def _noted(self, called: Called) -> Called:
        self.calls = [*self.calls, called][-ROWS:]
        return called

    def _answered(self, call: ToolCall, turn_id: str, caller: Caller) -> Called:
        facts = (call.id, turn_id, call.name, call.arguments)
        function = self._functions.get(call.name)
        if function is None:
            there = ", ".join(self._functions) or "none"
            return Called(*facts, error=f"there is no tool {call.name!r} (there are: {there})")
        try:
            arguments = function.arguments(call.arguments)
        except ValueError as error:
            return Called(*facts, error=cut(f"the arguments are wrong: {error}"))
        confirmed = self._confirmed(function, call, caller)
        if confirmed is False:
            return Called(*facts, error=REFUSED, confirmed=False)
        whole, failed, seconds = caller.carry_out(call, partial(_outcome, function, arguments))
        result, failure = (None, cut(whole)) if failed else (cut(whole), None)
        return Called(*facts, result, failure, seconds, confirmed, len(whole))

    def _confirmed(self, function: Function, call: ToolCall, caller: Caller) -> bool | None:
        if not function.confirm:
            return None
        consent = caller.ask(call)
        if consent == "always":
            function.confirm = False
        return consent != "no"


def _outcome(function: Function, arguments: Mapping[str, Any]) -> Outcome:
    begin, failed = time.perf_counter(), False
    try:
        whole = function.returned(arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, or what another library cancels with
        whole, failed = f"{type(error).__name__}: {error}", True
    return whole, failed, time.perf_counter() - begin
