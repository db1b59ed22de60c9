"""Sessions of another process's notebooks: made, continued, forked and forgotten here."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from mlxnb.host.control.route import Control
from mlxnb.host.control.rows import numbered, to_json, turn_to_json
from mlxnb.host.sight import Sight
from mlxnb.sessions import exported as files
from mlxnb.sessions import views
from mlxnb.sessions.session import Session

NONE = type(None)


class Conversation(Control):
    """A route of one session."""

    def session(self, name: str) -> Session:
        """The caller's session of that name; `UnknownSession` if there is none."""
        return self.engine.find_session(self.sight.full(name))


class Sessions(Control):
    """``GET api/sessions``: the caller's. ``POST``: make one, or find it, as `Engine.session`."""

    async def get(self) -> None:
        """Answer with session rows."""
        await self.told(lambda: {"sessions": self._rows()})

    async def post(self) -> None:
        """Make or find a session."""
        text, kinds = (str, NONE), {"tools": (list, NONE), "options": (dict, NONE)}
        fields = self.fields(model=text, system=text, name=text, **kinds)
        await self.told(lambda: _described(self._made(**fields), self.sight))

    def _rows(self) -> list[Any]:
        sight = self.sight
        own = [session for session in self.engine.all_sessions() if sight.owns(session.name)]
        rows = views.session_rows(self.engine.core, own)
        return [to_json(replace(row, name=sight.short(row.name))) for row in rows]

    def _made(
        self, model: str | None, system: str | None, name: str | None, tools: Any, options: Any
    ) -> Session:
        sight, options = self.sight, dict(options or {})
        salt = sight.salt(options.get("cache_salt") or "")
        if salt:
            options["cache_salt"] = salt
        full = None if name is None else sight.full(name)
        options = numbered(options)
        return self.engine.session(model, system, full, tools, **options)


class One(Conversation):
    """``GET api/sessions/{name}``: its options and history. ``DELETE``: forget it."""

    async def get(self, name: str) -> None:
        """Answer with all that another process needs to show it."""
        await self.told(lambda: _described(self.session(name), self.sight))

    async def delete(self, name: str) -> None:
        """Forget it; with ``?forget=1`` its KV too."""
        forget = bool(self.flag("forget"))
        await self.done(lambda: self.engine.remove_session(self.sight.full(name), forget))


class Export(Conversation):
    """``GET api/sessions/{name}/export``: all of it but its KV."""

    async def get(self, name: str) -> None:
        """Answer with what a file of it holds, under the names that the caller knows."""

        def exported() -> Any:
            state, sight = self.session(name).exported(), self.sight
            salt = sight.short(state.options.cache_salt)
            options = replace(state.options, cache_salt=salt)
            known = {"name": sight.short(state.name), "options": options}
            return {"exported": state.model_copy(update=known).model_dump(mode="json")}

        await self.told(exported)


class Import(Control):
    """``POST api/import``: go on from what another host has exported."""

    async def post(self) -> None:
        """Make the session."""
        text = (str, NONE)
        fields = self.fields(exported=dict, name=text, model=text)

        def take_in() -> dict[str, Any]:
            sight = self.sight
            told = files.parsed(json.dumps(fields["exported"]).encode(), "this")
            salt = sight.salt(told.options.cache_salt)
            told = told.model_copy(update={"options": replace(told.options, cache_salt=salt)})
            name = sight.full(fields["name"] or told.name)
            session, note = self.engine.take_in_session(told, name, fields["model"])
            return _described(session, sight) | {"note": note}

        await self.told(take_in)


class Keep(Conversation):
    """``POST api/sessions/{name}/keep``: save it after each turn."""

    async def post(self, name: str) -> None:
        """Keep it."""
        await self.done(lambda: self.session(name).keep())


class Restore(Control):
    """``POST api/restore``: go on with a session that was kept, or find it."""

    async def post(self) -> None:
        """Make it, or find it."""
        name, sight = self.fields(name=(str, NONE))["name"], self.sight

        def restore() -> dict[str, Any]:
            full = None if name is None else sight.full(name)
            session, note = self.engine.take_kept_session(full, sight.owns)
            return _described(session, sight) | {"note": note}

        await self.told(restore)


class Tools(Conversation):
    """``POST api/sessions/{name}/tools``: other tool definitions."""

    async def post(self, name: str) -> None:
        """Take them."""
        tools = self.fields(tools=list)["tools"]

        def take() -> dict[str, Any]:
            session = self.session(name)
            session.set_tools(tools)
            return _described(session, self.sight)

        await self.told(take)


class Fork(Conversation):
    """``POST api/sessions/{name}/fork``: a new session with the same past."""

    async def post(self, name: str) -> None:
        """Fork it."""
        wanted = self.fields(name=(str, NONE))["name"]
        sight = self.sight
        full = sight.full(wanted) if wanted is not None else None
        await self.told(lambda: _described(self.session(name).fork(full), sight))


class Rewind(Conversation):
    """``POST api/sessions/{name}/rewind``: take turns back."""

    async def post(self, name: str) -> None:
        """Rewind it."""
        turns = self.fields(turns=int)["turns"]

        def rewind() -> dict[str, Any]:
            self.session(name).rewind(turns)
            return _described(self.session(name), self.sight)

        await self.told(rewind)


class Reset(Conversation):
    """``POST api/sessions/{name}/reset``: forget what was said."""

    async def post(self, name: str) -> None:
        """Reset it."""

        def reset() -> dict[str, Any]:
            self.session(name).reset()
            return _described(self.session(name), self.sight)

        await self.told(reset)


def _described(session: Session, sight: Sight) -> dict[str, Any]:
    """A session for a process that has none of its objects."""
    return {
        "name": sight.short(session.name),
        "options": to_json(session.options),
        "turns": session.turns,
        "answering": session.answering,
        "forked_from": session.forked_from and sight.short(session.forked_from),
        "created_at": to_json(session.created_at),
        "last_used": to_json(session.last_used),
        "history": session.history,
        "tokens": session.tokens,
        "last": None if session.last is None else turn_to_json(session.last),
    }
