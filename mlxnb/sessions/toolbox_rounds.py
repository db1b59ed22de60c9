"""Turns of a session whose model calls functions: until it answers, or has called too often."""

from __future__ import annotations

import builtins
import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from mlxnb.errors import ContextOverflow, InvalidOption
from mlxnb.records.turn import Source, ToolCall, Turn
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.toolbox import INTERRUPTED, Consent, Outcome
from mlxnb.sessions.toolbox_calls import Called
from mlxnb.sessions.toolbox_run import Run

if TYPE_CHECKING:
    from mlxnb.sessions.session import Session

_WORDS: dict[str, Consent] = {
    "y": "yes",
    "yes": "yes",
    "n": "no",
    "no": "no",
    "a": "always",
    "always": "always",
}


class Watcher:
    """Sees a run go on. This one waits, asks with ``input``, calls where it is, and warns."""

    def turn(self, begin: Callable[[], Reply]) -> Turn:
        """Begin a turn, and wait for it."""
        return begin().result()

    def called(self, call: Called) -> None:
        """Take note of a call that was made or refused."""

    def note(self, text: str) -> None:
        """Say something about the run to the user."""
        warnings.warn(text, stacklevel=5)  # where `Session.run` was called

    @property
    def can_ask(self) -> bool:
        """Whether somebody is there to be asked."""
        return _can_ask()

    def carry_out(self, call: ToolCall, work: Callable[[], Outcome]) -> Outcome:
        """See `Caller.carry_out`."""
        return work()

    def ask(self, call: ToolCall) -> Consent:
        """Ask the user whether a call may be made; no answer at all is a no."""
        arguments = json.dumps(call.arguments, ensure_ascii=True)
        while True:
            try:
                said = input(f"call {call.name} {arguments}? [y]es / [n]o / [a]lways: ")
            except EOFError:
                return "no"
            except (NotImplementedError, OSError) as error:
                raise _cannot([call.name]) from error
            if (word := said.strip().lower()) in _WORDS:
                return _WORDS[word]


def run(
    session: Session,
    text: str,
    rounds: int | None = None,
    watcher: Watcher | None = None,
    source: Source = "python",
    **options: Any,
) -> Turn:
    """See `Session.run`. ``watcher`` follows it."""
    watcher = watcher or Watcher()
    with session.running(watcher, source) as going:
        return _rounds(session, text, rounds, watcher, going, options)


def _rounds(
    session: Session,
    text: str,
    rounds: int | None,
    watcher: Watcher,
    going: Run,
    options: dict[str, Any],
) -> Turn:
    rounds = session.toolbox.rounds if rounds is None else rounds
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 0:
        raise InvalidOption(f"rounds is a whole number, 0 or more, not {rounds!r}")
    if session.toolbox.asking and not watcher.can_ask:
        raise _cannot(session.toolbox.asking)
    first, later = _first(session, options), _later(options)
    turn = watcher.turn(lambda: going.reply(text, **first))
    for _ in range(rounds):
        if not _is_ours(session, turn):
            return turn
        _answer(session, turn, watcher, going)
        begin = partial(going.reply, None, **later)
        turn = _went_on(session, turn, watcher, begin)
    if _is_ours(session, turn):
        _end(session, turn, f"the limit of {rounds} rounds of tool calls is reached", watcher)
    return turn


def _first(session: Session, options: dict[str, Any]) -> dict[str, Any]:
    """Of an answer that has a schema, calls must be let through."""
    open_ = options.get("schema") is not None and options.get("tool_choice") is None
    return {**options, "tool_choice": "auto"} if open_ and len(session.toolbox) else options


def _later(options: dict[str, Any]) -> dict[str, Any]:
    """A call that was forced is forced once: else the model could never answer."""
    choice = options.get("tool_choice")
    free = {name: value for name, value in options.items() if name != "tool_choice"}
    return options if choice in ("auto", "none") else free


def _is_ours(session: Session, turn: Turn) -> bool:
    """Whether a turn made calls, and none of a tool that is declared and not a function.

    One that was cut behind a call has made it, whatever else it was about to say.
    """
    if not turn.tool_calls or not turn.ended_well:
        return False
    declared = {tool.get("function", tool)["name"] for tool in session.options.tool_list or ()}
    foreign = {name for name in declared if name not in session.toolbox}
    return len(session.toolbox) > 0 and not any(c.name in foreign for c in turn.tool_calls)


def _answer(session: Session, turn: Turn, watcher: Watcher, going: Run) -> None:
    """Make the calls of a turn in their order; after an interrupt all have a result too."""
    box, made = session.toolbox, 0
    try:
        for call in turn.tool_calls:
            called = box.answer(call, turn.id, going)
            made += 1
            _file(session, called)
            watcher.called(called)
    except BaseException:
        for call in turn.tool_calls[made:]:
            box.drop(call, turn.id, INTERRUPTED)
        for called in box.of_turn(turn.id):
            _file(session, called)
        raise


def _went_on(session: Session, turn: Turn, watcher: Watcher, begin: Callable[[], Reply]) -> Turn:
    """The turn after some calls; where their results overflow the context, with shorter ones."""
    cut: set[str] = set()
    while True:
        try:
            return watcher.turn(begin)
        except ContextOverflow as error:
            called = session.toolbox.shorten(turn.id, error.limit)
            if called is None:
                raise
            _file(session, called)
            if called.call_id not in cut:
                watcher.note(f"a result of {called.name} overflows the context: it is cut")
            cut.add(called.call_id)


def _end(session: Session, turn: Turn, why: str, watcher: Watcher) -> None:
    """Leave the calls of a turn unmade, so that the user can go on."""
    for call in turn.tool_calls:
        _file(session, session.toolbox.drop(call, turn.id, why))
    watcher.note(f"{why}: the calls of the last turn were not made; say something to go on")


def _file(session: Session, called: Called) -> None:
    failed = called.error is not None
    session.add_tool_result(called.call_id, called.error if failed else called.result, failed)


# --- asking -----------------------------------------------------------------------------------


def _can_ask() -> bool:
    """Whether somebody is there to answer ``input``.

    A kernel puts a method of its own in its place, and knows whether its frontend can be asked.
    """
    if isinstance(builtins.input, BuiltinFunctionType):
        return sys.stdin is not None and sys.stdin.isatty()
    kernel = getattr(builtins.input, "__self__", None)
    return bool(getattr(kernel, "_allow_stdin", True))


def _cannot(names: list[str]) -> InvalidOption:
    there = ", ".join(names)
    return InvalidOption(
        f"before {there} is called you are asked, and here you cannot be (no input); "
        "register it with confirm=False, or %mlx_tools --no-confirm"
    )
