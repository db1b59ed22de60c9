"""`%mlx_tools`: functions of the notebook that the model may call; and turns that call them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from mlxnb.notebook.box import returned
from mlxnb.notebook.interrupt import interrupted
from mlxnb.notebook.plain import plain
from mlxnb.notebook.turn import show_reply, take_turn
from mlxnb.sessions.function import Function
from mlxnb.sessions.shape import forces
from mlxnb.sessions.toolbox_rounds import Watcher, run
from mlxnb.sessions.toolbox_run import STOPPED

if TYPE_CHECKING:
    from mlxnb.notebook.views import View
    from mlxnb.records.turn import Turn
    from mlxnb.sessions.reply import Reply
    from mlxnb.sessions.session import Session
    from mlxnb.sessions.toolbox_calls import Called

SHOWN = 2_000
"""Characters of a result that a cell shows; ``session.calls()`` has all of it."""


def set_up(session: Session, given: SimpleNamespace, values: Mapping[str, Any]) -> str:
    """Do what a line says, all of it or nothing; what to print.

    Parameters
    ----------
    values
        The notebook's variables.
    """
    functions = [_function(name, values) for name in given.function]
    for made in [Function(function) for function in functions]:
        if made.name in given.remove:
            raise UsageError(f"%mlx_tools: {made.name} is to be added and removed")
    for name in given.remove:
        session.toolbox.check(name)
    for name in given.remove:
        session.remove_tool(name)
    for function in functions:
        session.tool(function, confirm=not given.no_confirm)
    if given.limit is not None:
        session.toolbox.rounds = given.limit
    return described(session)


def _function(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise UsageError(f"%mlx_tools: there is no function {name!r} in this notebook")
    return values[name]


def described(session: Session) -> str:
    """A line a function, in the order in which the model sees them."""
    box = session.toolbox
    if not len(box):
        return f"{session.name}: no functions; %mlx_tools FUNCTION registers one"
    lines = [f"{session.name}: {_count(len(box))}, at most {box.rounds} rounds of calls"]
    lines += [f"{_signed(made)}: {'asks first' if made.confirm else 'asks not'}" for made in box]
    return "\n".join(lines)


def _count(number: int) -> str:
    return f"{number} function{'' if number == 1 else 's'}"


def _signed(made: Function) -> str:
    return f"{made.name}({', '.join(made.definition['function']['parameters']['properties'])})"


def shape(given: SimpleNamespace, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a turn that say what it must look like.

    Parameters
    ----------
    values
        The notebook's variables, one of which may be the schema.
    """
    options: dict[str, Any] = {}
    if given.tool_choice is not None:
        options["tool_choice"] = given.tool_choice
    if given.schema is not None:
        if given.schema not in values:
            raise UsageError(f"--schema {given.schema}: there is no such variable")
        schema = values[given.schema]
        if not (inspect.isclass(schema) or isinstance(schema, Mapping)):
            kind = type(schema).__name__
            raise UsageError(
                f"--schema {given.schema}: a pydantic model or a JSON schema, not {kind}"
            )
        options["schema"] = schema
    return options


def take_turns(
    session: Session, text: str, view: Callable[[], View], options: dict[str, Any]
) -> None:
    """As `take_turn`; where functions are registered, until the model answers.

    Parameters
    ----------
    view
        Makes what shows one turn.
    """
    first = view()
    first.calls_only = forces(options.get("tool_choice"))
    if len(session.toolbox):
        try:
            run(session, text, watcher=Shown(session, view, first), source="magic", **options)
        except KeyboardInterrupt as error:
            told = hasattr(error, "_render_traceback_")  # the answer was stopped
            raise (error if told else interrupted(STOPPED)) from None
    else:
        take_turn(session, text, first, options)
    if session.last is not None and session.last.invalid is not None:
        print(f"no value of the schema: {session.last.invalid}", file=sys.stderr, flush=True)


class Shown(Watcher):
    """Shows turns, calls and results as they happen."""

    def __init__(self, session: Session, view: Callable[[], View], first: View) -> None:
        self._session, self._make = session, view
        self._view = first

    def turn(self, begin: Callable[[], Reply]) -> Turn:
        """Show a turn; an interrupt stops it."""
        view, self._view = self._view, self._make()
        view.answered = self._session.toolbox
        return show_reply(begin, view)

    def called(self, call: Called) -> None:
        """Show what a call came to."""
        failed = call.error is not None
        what = (call.error if failed else call.result) or ""
        text = what if len(what) <= SHOWN else f"{what[:SHOWN]} …"
        self._view.say(plain(returned(call.name, text, failed)))

    def note(self, text: str) -> None:
        """Say it beside the answer."""
        print(text, file=sys.stderr, flush=True)
