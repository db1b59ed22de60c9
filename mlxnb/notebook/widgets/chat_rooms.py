"""The rooms of an engine, and the thread that looks after them while there are chats."""

from __future__ import annotations

import dataclasses
import logging
import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from mlxnb.errors import UnknownSession
from mlxnb.notebook.loaded import loaded_models
from mlxnb.notebook.widgets.chat_room import Listener, Room, Told

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine
    from mlxnb.sessions.session import Session

log = logging.getLogger(__name__)


class Rooms:
    """The rooms of an engine, and the thread that looks after them while somebody listens."""

    PERIOD_S = 0.25
    """Between two looks at what this process knows."""
    DEEP = 12
    """Looks of which one asks the engine: a host's session may go on in another notebook."""

    def __init__(self, engine: Engine) -> None:
        self._engine = ref(engine)  # what is kept by engine must not keep it
        self._lock = threading.Lock()
        self._rooms: WeakValueDictionary[int, Room] = WeakValueDictionary()
        self._watch: threading.Thread | None = None

    def of(self, session: Session) -> Room:
        """The room of a session, made if there is none."""
        engine = self._engine()
        assert engine is not None, "who asks has the engine"
        with self._lock:
            room = self._rooms.get(id(session))
            if room is None:
                room = self._rooms[id(session)] = Room(session, engine)
            return room

    def tell(self, told: Told) -> None:
        """Tell the listeners of all rooms."""
        with self._lock:
            there = list(self._rooms.values())
        for room in there:
            room.tell(told)

    def enter(self, session: Session, listener: Listener) -> Room:
        """The room of a session, which the listener has joined."""
        room = self.of(session)
        with self._lock:
            room.join(listener)
            if self._watch is None:
                self._watch = threading.Thread(
                    target=self._look, name="mlxnb-chat-watch", daemon=True
                )
                self._watch.start()
        return room

    def _look(self) -> None:
        pause, looks = threading.Event(), 0
        while not pause.wait(self.PERIOD_S):
            with self._lock:
                joined = [room for room in self._rooms.values() if room.joined]
                if not joined:
                    self._watch = None
                    return
            looks += 1
            for room in joined:
                if room.heard:
                    _look_at(room, deep=looks % self.DEEP == 0)


def _look_at(room: Room, deep: bool) -> None:
    try:
        room.look(deep)
    except Exception:
        log.exception("a chat did not see how its session goes on")


_rooms: WeakKeyDictionary[Engine, Rooms] = WeakKeyDictionary()
_lock = threading.Lock()


def rooms(engine: Engine) -> Rooms:
    """The rooms of an engine; they go with it."""
    with _lock:
        return _rooms.setdefault(engine, Rooms(engine))


# --- engines that end -------------------------------------------------------------------------


def refound(engine: Engine, lost: Session) -> Session:
    """The session of that name in another engine, made as the lost one was if there is none.

    Raises
    ------
    NothingLoaded
        The engine has no model.
    """
    try:
        return engine.find_session(lost.name)
    except UnknownSession:
        pass
    options, there = lost.options, lost.model in loaded_models(engine)
    own = {name: getattr(options, name) for name in ("history", "reuse", "thinking")}
    made = engine.session(
        lost.model if there else None,
        options.system,
        lost.name,
        tools=options.tool_list,
        cache_salt=options.cache_salt or None,
        **own,
        **dataclasses.asdict(options.sampling),
    )
    made.toolbox = lost.toolbox.copy()
    return made
