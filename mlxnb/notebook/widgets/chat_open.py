"""Which session a chat begins with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from mlxnb.errors import InvalidOption, UnknownSession
from mlxnb.notebook.widgets.chat import Chat
from mlxnb.sessions.registry import check_name
from mlxnb.sessions.session import Session

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine


def open_chat(
    engine: Engine,
    session: str | Session | None = None,
    model: str | None = None,
    system: str | None = None,
    save: bool = False,
    now: Callable[[], Engine] | None = None,
) -> Chat:
    """A chat on a session of an engine; see `mlxnb.chat`, and `Chat` for ``now``."""
    return Chat(engine, _session(engine, session, model, system), save, now)


def _session(
    engine: Engine, session: str | Session | None, model: str | None, system: str | None
) -> Session:
    if isinstance(session, Session):
        return session
    if session is not None and not isinstance(session, str):
        kind = type(session).__name__
        raise InvalidOption(f"session is a session or its name, not of the type {kind}")
    if session is not None:
        check_name(session)
        if model is None and system is None:
            with suppress(UnknownSession):
                return engine.find_session(session)
    return engine.session(model, system, session)
