"""Which session a turn goes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mlxnb.errors import UnknownSession

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine
    from mlxnb.sessions.session import Session


class CurrentSession:
    """The session that turns without a session's name go to; made when the first one comes.

    Attributes
    ----------
    name
        None before the first turn, and after the session was removed.
    """

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self.name: str | None = None
        self._engine = engine

    def use(self, session: Session) -> Session:
        """Make a session the current one."""
        self.name = session.name
        return session

    def get(self) -> Session:
        """The current session.

        Raises
        ------
        UnknownSession
            There is none.
        """
        found = self._find()
        if found is None:
            raise UnknownSession(self._none())
        return found

    def _none(self) -> str:
        names = ", ".join(self._engine().sessions()["name"])
        if names:
            return f"no session is the current one; %mlx_session use NAME takes one of: {names}"
        return "there is no session yet; %mlx_chat or %mlx_session new makes one"

    def _find(self) -> Session | None:
        if self.name is None:
            return None
        try:
            return self._engine().find_session(self.name)
        except UnknownSession:
            self.name = None
            return None

    def for_turn(
        self, name: str | None, system: str | None, model: str | None, default: str | None = None
    ) -> Session:
        """The session that a turn with these options goes to; ``default`` is a new one's model.

        A name: that session, made if there is none; one that is there must agree with the
        options. No name: the current session if it agrees, else a new one, which becomes current.

        Raises
        ------
        SessionExists
            The named session has another system text or model.
        NothingLoaded
            A new session has no model.
        """
        engine = self._engine()
        if name is not None:
            if system is None and model is None:
                try:
                    return engine.find_session(name)
                except UnknownSession:
                    pass
            return self._made(name, system, model, default)
        there = self._find()
        if there is not None and _agrees(there, system, model):
            return there
        return self.use(self._made(None, system, model, default))

    def _made(
        self, name: str | None, system: str | None, model: str | None, default: str | None
    ) -> Session:
        known = name is not None and self._is_there(name)
        chosen = model if known else model or default
        return self._engine().session(chosen, system=system, name=name)

    def _is_there(self, name: str) -> bool:
        try:
            self._engine().find_session(name)
        except UnknownSession:
            return False
        return True


def _agrees(session: Session, system: str | None, model: str | None) -> bool:
    return (system is None or session.options.system == system) and model in (None, session.model)
