"""A session whose tokens and KV are in another process."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlxnb.engine.sampling import Sampling
from mlxnb.errors import UnknownSession
from mlxnb.host.control.rows import from_json, turn_from_json
from mlxnb.host.remote.reply import RemoteReply
from mlxnb.host.remote.wire import part
from mlxnb.records.turn import Source, Turn
from mlxnb.sessions.exported import Exported
from mlxnb.sessions.messages import Message, result_message
from mlxnb.sessions.options import Options, check_text, packed_tools
from mlxnb.sessions.session import Session
from mlxnb.sessions.shape import Shape

if TYPE_CHECKING:
    from mlxnb.host.remote.engine import RemoteEngine


class RemoteSession(Session):
    """A session of a `RemoteEngine`.

    What can change is asked of the host each time: other notebooks may use the same session.

    Parameters
    ----------
    told
        The host's description of it.
    """

    def __init__(self, engine: RemoteEngine, told: Mapping[str, Any]) -> None:
        self._engine = engine
        self.name = told["name"]
        self.options = from_json(Options, told["options"])
        self.forked_from = told["forked_from"]
        self.created_at = dt.datetime.fromisoformat(told["created_at"])
        self.last_used = dt.datetime.fromisoformat(told["last_used"])
        self.last = turn_from_json(told["last"]) if told["last"] is not None else None
        self._reply: RemoteReply | None = None

    @property
    def _path(self) -> str:
        return f"/sessions/{part(self.name)}"

    def _told(self) -> Any:
        return self._engine.wire.get(self._path)

    @property
    def history(self) -> list[Message]:
        """See `Session.history`."""
        history: list[Message] = self._told()["history"]
        return history

    @property
    def tokens(self) -> list[int]:
        """See `Session.tokens`."""
        tokens: list[int] = self._told()["tokens"]
        return tokens

    @property
    def turns(self) -> int:
        """See `Session.turns`."""
        return int(self._told()["turns"])

    @property
    def answering(self) -> bool:
        """See `Session.answering`."""
        running = self._reply is not None and self._reply.turn is None
        return running or bool(self._told()["answering"])

    # --- turns --------------------------------------------------------------------------------

    def reply(
        self,
        text: str | None,
        source: Source = "python",
        schema: Any = None,
        tool_choice: str | None = None,
        **sampling: Any,
    ) -> RemoteReply:
        """See `Session.reply`."""
        self.check_free()
        if text is not None:
            check_text("a message", text)
        wanted, shape = _named(Sampling.of(sampling)), Shape.of(schema, tool_choice)
        body = {"text": text, "source": source, "sampling": wanted, "tool_choice": tool_choice}
        body["schema"] = None if shape.schema is None else json.loads(shape.schema)
        path = f"{self._path}/turns"

        def settle(turn: Turn) -> None:
            shape.mark(turn)
            self._settle(turn)

        after = self.last
        try:
            self._reply = RemoteReply(self._engine.wire, path, body, settle)
        except UnknownSession:
            raise UnknownSession(f"the session {self.name!r} was removed") from None
        self._tell(text, after, self._reply, source)
        return self._reply

    def send_tool_result(self, call_id: str, content: Any, is_error: bool = False) -> Turn | None:
        """See `Session.send_tool_result`."""
        result_message(str(call_id), "", content, is_error)  # raises where it has no JSON form
        body = {"call_id": call_id, "content": content, "is_error": is_error}
        told = self._engine.wire.post(f"{self._path}/tool_results", body)
        if told["turn"] is None:
            return None
        turn = turn_from_json(told["turn"])
        self._settle(turn)
        return turn

    def add_tool_result(self, call_id: str, content: Any, is_error: bool = False) -> None:
        """See `Session.add_tool_result`."""
        result_message(str(call_id), "", content, is_error)  # raises where it has no JSON form
        body = {"call_id": call_id, "content": content, "is_error": is_error, "wait": True}
        self._engine.wire.post(f"{self._path}/tool_results", body)

    def _settle(self, turn: Turn) -> None:
        self.last, self.last_used = turn, dt.datetime.now(dt.UTC)

    # --- the conversation as a whole ----------------------------------------------------------

    def fork(self, name: str | None = None) -> RemoteSession:
        """See `Session.fork`."""
        other = self._engine.adopt(self._engine.wire.post(f"{self._path}/fork", {"name": name}))
        other.toolbox = self.toolbox.copy()
        return other

    def rewind(self, turns: int = 1) -> None:
        """See `Session.rewind`."""
        self.check_free()
        self._engine.wire.post(f"{self._path}/rewind", {"turns": turns})

    def reset(self) -> None:
        """See `Session.reset`."""
        self.check_free()
        self._engine.wire.post(f"{self._path}/reset")

    def set_tools(self, tools: list[Any]) -> None:
        """See `Session.set_tools`."""
        self.check_free()
        plain = [json.loads(tool) for tool in packed_tools(tools)]
        told = self._engine.wire.post(f"{self._path}/tools", {"tools": plain})
        self.options = from_json(Options, told["options"])

    # --- elsewhere and later ------------------------------------------------------------------

    def exported(self) -> Exported:
        """See `Session.exported`."""
        told = self._engine.wire.get(f"{self._path}/export")["exported"]
        return Exported.model_validate_json(json.dumps(told))

    def keep(self) -> None:
        """See `Session.keep`."""
        self._engine.wire.post(f"{self._path}/keep")


def _named(sampling: Sampling) -> dict[str, Any]:
    """The options that were given, as JSON."""
    given = dataclasses.asdict(sampling)
    return {name: value for name, value in given.items() if value is not None}
