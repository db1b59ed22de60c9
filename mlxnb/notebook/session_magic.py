"""`%mlx_session`: what its verbs do."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mlxnb.errors import InvalidOption
from mlxnb.notebook.commands import SESSION_HELP, VERBS
from mlxnb.notebook.current import CurrentSession
from mlxnb.notebook.options import take_word
from mlxnb.notebook.plain import plain

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine
    from mlxnb.sessions.messages import Message
    from mlxnb.sessions.session import Session


class SessionMagic:
    """Carries the verbs out.

    Parameters
    ----------
    fill
        Replaces ``{NAME}`` in a text for the given names.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        current: CurrentSession,
        fill: Callable[[str, list[str]], str],
    ) -> None:
        self._engine, self._current, self._fill = engine, current, fill

    def run(self, line: str) -> tuple[str, Session | None, str | None]:
        """Do what a line says; what to print, the session, and the variable to store it in."""
        word, rest = take_word(line.strip()) if line.strip() else ("show", "")
        if word not in VERBS:
            SESSION_HELP.fail(f"VERB is one of {', '.join(VERBS)}, not {word!r}")
        given = VERBS[word].parse(rest)
        said, session = getattr(self, f"_{word}")(given)
        return said, session, getattr(given, "output", None)

    def _named(self, name: str | None) -> Session:
        return self._current.get() if name is None else self._engine().find_session(name)

    def _new(self, given: SimpleNamespace) -> tuple[str, Session]:
        options: dict[str, Any] = {"reuse": False} if given.no_reuse else {}
        if given.history:
            options["history"] = given.history
        if given.salt:
            options["cache_salt"] = given.salt
        system = self._fill(given.system, given.var) if given.system is not None else None
        engine = self._engine()
        session = self._current.use(engine.session(given.model, system, given.name, **options))
        return f"{session.name}: {_turns(session)}, on {session.model}", session

    def _use(self, given: SimpleNamespace) -> tuple[str, Session]:
        session = self._current.use(self._named(given.name))
        return f"{session.name}: {_turns(session)}, on {session.model}", session

    def _fork(self, given: SimpleNamespace) -> tuple[str, Session]:
        origin = self._named(given.session)
        fork = self._current.use(origin.fork(given.name))
        return f"{fork.name}: forked from {origin.name} after {_turns(fork)}", fork

    def _rewind(self, given: SimpleNamespace) -> tuple[str, Session]:
        session = self._named(given.session)
        if given.n is not None and not given.n.isdecimal():
            raise InvalidOption(f"N is a number of turns, not {given.n!r}")
        session.rewind(int(given.n or 1))
        return f"{session.name}: {_turns(session)} left", session

    def _reset(self, given: SimpleNamespace) -> tuple[str, Session]:
        session = self._named(given.session)
        session.reset()
        return f"{session.name}: reset", session

    def _rm(self, given: SimpleNamespace) -> tuple[str, None]:
        self._engine().remove_session(given.name, given.forget)
        return f"{given.name}: removed", None

    def _export(self, given: SimpleNamespace) -> tuple[str, Session]:
        session = self._named(given.name)
        path = session.export(given.file)
        return f"{session.name}: {_turns(session)} in {path}", session

    def _import(self, given: SimpleNamespace) -> tuple[str, Session]:
        return self._taken(lambda e: e.import_session(given.file, given.name, given.model))

    def _keep(self, given: SimpleNamespace) -> tuple[str, Session]:
        session = self._named(given.name)
        session.keep()
        return f"{session.name}: kept; %mlx_session restore {session.name} goes on", session

    def _restore(self, given: SimpleNamespace) -> tuple[str, Session]:
        return self._taken(lambda engine: engine.restore_session(given.name))

    def _taken(self, take: Callable[[Engine], Session]) -> tuple[str, Session]:
        """Make a session that was elsewhere the current one; what it warns of is said."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            session = self._current.use(take(self._engine()))
        notes = [str(each.message) for each in warned if each.category is UserWarning]
        told = f"{session.name}: {_turns(session)}, on {session.model}"
        return "\n".join([told, *notes]), session

    def _show(self, given: SimpleNamespace) -> tuple[str, Session]:
        session = self._named(given.name)
        lines = [f"{session.name}: {_turns(session)}, on {session.model}"]
        lines += [line for message in session.history for line in _said(message)]
        return plain("\n".join(lines)), session


def _said(message: Message) -> Iterator[str]:
    """A message as lines: what it says, and the tools that it calls."""
    yield f"{message['role']}: {message.get('content') or ''}"
    for call in message.get("tool_calls", ()):
        arguments = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        yield f"call {call['id']}: {call['function']['name']} {arguments}"


def _turns(session: Session) -> str:
    return f"{session.turns} turn{'' if session.turns == 1 else 's'}"
