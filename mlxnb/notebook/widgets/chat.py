"""A chat with a session, as a widget."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import anywidget
from IPython.display import DisplayHandle, display
from traitlets import Bool, List, Unicode

from mlxnb.errors import InvalidOption, MlxnbError
from mlxnb.notebook.loaded import loaded_models
from mlxnb.notebook.widgets.chat_room import Told
from mlxnb.notebook.widgets.chat_rooms import refound, rooms
from mlxnb.notebook.widgets.gone import gone
from mlxnb.notebook.widgets.subshell import as_addressed
from mlxnb.notebook.widgets.transcript import Exchange
from mlxnb.notebook.widgets.transcript_html import as_bundle
from mlxnb.sessions.toolbox import Consent

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine
    from mlxnb.sessions.session import Session

log = logging.getLogger(__name__)

SAMPLING = ("temperature", "top_p", "max_tokens", "seed")
"""What the widget's controls set."""
CONSENTS: dict[str, Consent] = {consent: consent for consent in get_args(Consent)}


class Chat(anywidget.AnyWidget):
    """Shows a session and speaks in it; made by ``mlxnb.chat()``.

    All that the front end asks for is done on other threads than the one that takes its messages,
    so that these return at once.

    Parameters
    ----------
    session
        Where it begins; the user can change to another one.
    save
        Keep the transcript in the widget's state, which a saved notebook has, and in a copy
        under the widget, which is seen where the widget is not.
    now
        Gives the engine to go on in when this one has ended.
    """

    _esm = Path(__file__).parent / "chat.js"
    _css = Path(__file__).parent / "chat.css"
    save = Bool(False).tag(sync=True)
    transcript: List[Told] = List().tag(sync=True)
    key = Unicode().tag(sync=True)  # lets the front end find out whether a kernel is there

    def __init__(
        self,
        engine: Engine,
        session: Session,
        save: bool = False,
        now: Callable[[], Engine] | None = None,
    ) -> None:
        super().__init__(save=save)
        self.key = self.model_id
        as_addressed(self)
        self._engine, self._now = engine, now or (lambda: engine)
        self._order = threading.Lock()
        self._copies: list[Any] = []  # DisplayHandles
        self._views: set[Any] = set()  # those of the front end; without any it is told nothing
        self._room = rooms(engine).enter(session, self)
        self._keep()
        self.on_msg(self._take)

    @property
    def session(self) -> Session:
        """The session that it shows."""
        return self._room.session

    def __repr__(self) -> str:
        return f"Chat(session={self.session.name!r})"

    def close(self) -> None:
        """Show nothing more; the session goes on."""
        if hasattr(self, "_room"):
            self._room.leave(self)
        super().close()

    @property
    def listening(self) -> bool:
        """See `Listener`."""
        return bool(self._views) or self.save

    def hear(self, told: Told) -> None:
        """See `Listener.hear`."""
        try:
            if self._views:
                self.send(told)
            if told["kind"] in ("exchange", "transcript"):
                self._keep()
        except Exception:
            log.exception("a chat was not shown what happened")

    def _keep(self) -> None:
        """What a saved notebook has of the conversation: all of it, or nothing."""
        if not self.save:
            return
        self.transcript = [exchange.told() for exchange in self._ended]
        for copy in self._copies:
            copy.update(as_bundle(self._ended, self.key), raw=True)

    @property
    def _ended(self) -> list[Exchange]:
        return [exchange for exchange in self._room.shown if not exchange.running]

    def _ipython_display_(self) -> None:
        """Show the widget, and under it a copy of what is to be saved."""
        if not self.save:
            raise NotImplementedError  # IPython shows it as any other widget
        bundle, metadata = self._repr_mimebundle_() or ({}, {})
        display(bundle, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        copy: Any = DisplayHandle()  # type: ignore[no-untyped-call]
        with self._room.lock:
            copy.display(as_bundle(self._ended, self.key), raw=True)
            self._copies.append(copy)

    # --- what the front end asks for ----------------------------------------------------------

    def _take(self, _: object, asked: Any, buffers: object) -> None:
        """Take a message: ``stop`` is done at once, all else in turn on another thread."""
        del buffers
        if not isinstance(asked, dict):
            return
        if asked.get("kind") == "stop":
            self._room.stop()
            return
        threading.Thread(
            target=self._act, args=(asked,), name="mlxnb-chat-act", daemon=True
        ).start()

    def _act(self, asked: Told) -> None:
        """Do it and say so: ``done`` or ``refused``, and the request's id."""
        answer = {"request": asked.get("id")}

        def refuse(reason: str) -> None:
            self.send({"kind": "refused", "reason": reason, **answer})

        self.send({"kind": "taken", **answer})
        try:
            with self._order:
                act = self._action(asked.get("kind"))
                if asked.get("kind") not in ("hello", "bye"):
                    self._follow()
                act(asked, refuse)
        except MlxnbError as error:
            refuse(" ".join(str(error).split()))
        except Exception as error:
            log.exception("a chat could not do what it was asked for")
            refuse(f"{type(error).__name__} in mlxnb; the kernel's log has more")

    def _action(self, kind: Any) -> Callable[[Told, Callable[[str], None]], None]:
        known = {
            "hello": self._hello,
            "bye": self._bye,
            "send": self._say,
            "answer": self._answer,
            "edit": self._edit,
            "regenerate": self._edit,
            "list": self._list,
            "new": self._new,
            "session": self._change,
        }
        if kind not in known:
            raise InvalidOption(f"a chat cannot do {kind!r}")
        return known[kind]

    def _hello(self, asked: Told, refuse: Callable[[str], None]) -> None:
        with self._room.lock:
            self._views.add(asked.get("view"))
            self.send({"kind": "transcript", **self._room.told()})
        self._list(asked, refuse)

    def _bye(self, asked: Told, refuse: Callable[[str], None]) -> None:
        self._views.discard(asked.get("view"))

    def _follow(self) -> None:
        """Where the engine has ended, go on in the one that is in use now."""
        now = self._now()
        if now is self._engine or not gone(self._engine):
            return
        session, lost = refound(now, self.session), self._room.shown
        self._engine = now
        self._enter(session)
        self._room.inherit(lost)
        self._tell_all()

    def _list(self, asked: Told, refuse: Callable[[str], None]) -> None:
        self.send(self._listed())

    def _tell_all(self) -> None:
        """All chats of the engine learn which sessions there are."""
        rooms(self._engine).tell(self._listed())

    def _listed(self) -> Told:
        sessions = self._engine.sessions()
        columns = (sessions[name] for name in ("name", "model", "turns"))
        return {
            "kind": "list",
            "sessions": [
                {"name": name, "model": model, "turns": int(turns)}
                for name, model, turns in zip(*columns, strict=True)
            ],
            "models": loaded_models(self._engine),
        }

    def _say(self, asked: Told, refuse: Callable[[str], None]) -> None:
        self._room.send(_text(asked), _sampling(asked), refuse, asked.get("id"))

    def _answer(self, asked: Told, refuse: Callable[[str], None]) -> None:
        """The user says whether a call may be made."""
        consent = CONSENTS.get(str(asked.get("consent")))
        if consent is None:
            raise InvalidOption(f"a call is answered with {', '.join(CONSENTS)}")
        self._room.answer(str(asked.get("call")), consent)

    def _edit(self, asked: Told, refuse: Callable[[str], None]) -> None:
        """Go on in a branch; where that is refused, in the session as it was."""
        origin = self._room
        fork, said = origin.branch(asked.get("exchange", 0))

        def back(reason: str) -> None:
            if self.session is fork:
                self._enter(origin.session)
            with suppress(MlxnbError):
                self._engine.remove_session(fork.name)
                self._tell_all()
            refuse(reason)

        text = _text(asked) if "text" in asked else said
        self._enter(fork)
        self._room.send(text, _sampling(asked), back, asked.get("id"))
        self._tell_all()

    def _new(self, asked: Told, refuse: Callable[[str], None]) -> None:
        options = self.session.options
        model = asked.get("model") or self.session.model
        self._enter(self._engine.session(model, options.system, tools=options.tool_list))
        self._tell_all()

    def _change(self, asked: Told, refuse: Callable[[str], None]) -> None:
        self._enter(self._engine.find_session(str(asked.get("name"))))

    def _enter(self, session: Session) -> None:
        """Show another session."""
        self._room.leave(self)
        self._room = rooms(self._engine).enter(session, self)
        with self._room.lock:
            self.hear({"kind": "transcript", **self._room.told()})


def _text(asked: Told) -> str:
    text = asked.get("text")
    if not isinstance(text, str) or not text.strip():
        raise InvalidOption("there is no text")
    return text


def _sampling(asked: Told) -> dict[str, Any]:
    given = asked.get("sampling")
    if not isinstance(given, dict):
        return {}
    return {name: given[name] for name in SAMPLING if given.get(name) is not None}
