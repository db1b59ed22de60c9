"""Turns of sessions that another process's notebooks hold: followed as they are generated."""

from __future__ import annotations

from typing import Any

from mlxnb.engine.events import Piece
from mlxnb.errors import RequestFailed, UnknownTurn
from mlxnb.host.control.conversations import NONE, Conversation
from mlxnb.host.control.events import Events, Left
from mlxnb.host.control.route import Control, worded
from mlxnb.host.control.rows import numbered, record_to_json, to_json, turn_to_json
from mlxnb.records.turn import NOTEBOOK, Source, Turn
from mlxnb.sessions.reply import Reply
from mlxnb.wire import errors
from mlxnb.wire.errors import invalid


def notebook_source(given: str | None) -> Source:
    """Where in a notebook a turn came from; `WireError` with 400 where it did not."""
    source: Any = given or "python"
    if source not in NOTEBOOK:
        raise invalid(f"source is one of {', '.join(NOTEBOOK)}", "source")
    checked: Source = source
    return checked


class Follow(Conversation):
    """A route that streams a turn: ``begun``, then ``prefill`` and ``piece``, and last ``turn``.

    A turn that fails ends in ``turn`` too, with its error in OpenAI's shape. A client that goes
    away cancels it.
    """

    events: Events | None = None
    reply: Reply | None = None

    def on_connection_close(self) -> None:
        """Stop the turn within one step."""
        super().on_connection_close()
        if self.events is not None:
            self.events.leave()
        if self.reply is not None:
            self.reply.cancel()

    async def follow(self, reply: Reply) -> None:
        """Stream a turn that has begun."""
        self.reply = reply
        self.events = Events(self)
        await self.events.run("turn", lambda: self._followed(reply))

    def _followed(self, reply: Reply) -> dict[str, Any]:
        error: Exception | None = None
        assert self.events is not None, "a turn is followed into its events"
        self.context.replies[reply.turn_id] = reply
        try:
            self.events.tell("begun", {"turn_id": reply.turn_id})
            for event in reply.events():
                self._tell(event)
        except Left:
            reply.stop()
        except RequestFailed as failed:
            error = failed
        finally:
            self.context.replies.pop(reply.turn_id, None)
        turn = reply.outcome()
        return self._told_turn(turn, error)

    def _tell(self, event: object) -> None:
        assert self.events is not None, "a turn is followed into its events"
        name = "piece" if isinstance(event, Piece) else "prefill"
        self.events.tell(name, to_json(event))

    def _told_turn(self, turn: Turn, error: Exception | None) -> dict[str, Any]:
        told = {"turn": turn_to_json(turn), "record": record_to_json(self.engine.ledger[turn.id])}
        if error is None:
            return told
        body = worded(errors.of(error.__cause__ or error))
        body["error"]["message"] = str(error)  # a notebook's user may read what the cause said
        return told | body


class Send(Follow):
    """``POST api/sessions/{name}/turns``: say something."""

    async def post(self, name: str) -> None:
        """Begin, and stream; what is wrong with the request is a plain error."""
        given = {"schema": (dict, NONE), "tool_choice": (str, NONE)}
        given |= {"text": (str, NONE), "source": (str, NONE), "sampling": (dict, NONE)}
        fields = self.fields(**given)
        source = notebook_source(fields["source"])
        begin = self.session(name).reply
        sampling = fields["sampling"] or {}
        if sampling.keys() & fields.keys():
            raise invalid("sampling has options of sampling alone", "sampling")
        shape = fields["schema"], fields["tool_choice"]
        await self.follow(
            await self.context.blocking(
                lambda: begin(fields["text"], source, *shape, **numbered(sampling))
            )
        )


class CancelTurn(Control):
    """``POST api/turns/{id}/cancel``: stop a turn that somebody follows, within one step."""

    async def post(self, turn_id: str) -> None:
        """Stop it; harmless where it has ended."""
        reply = self.context.replies.get(turn_id)
        record = self.engine.ledger[turn_id]
        if not self.sight.sees_turn(record):
            raise UnknownTurn(f"no turn {turn_id!r}")
        if reply is not None:
            reply.cancel()
        self.answer({})


class Warm(Follow):
    """``POST api/warm``: compute the KV of a system text, or of a session's history."""

    async def post(self) -> None:
        """Wait until it is there."""
        text = (str, NONE)
        fields = self.fields(system=text, session=text, model=text, source=text, begins=text)
        source = notebook_source(fields["source"])
        if (fields["system"] is None) == (fields["session"] is None):
            raise invalid("give system, or session")

        def warm() -> dict[str, Any]:
            name = fields["session"]
            what = fields["system"] if name is None else self.session(name)
            begins = fields["begins"] or ""
            return self._told_turn(self.engine.warm(what, fields["model"], source, begins), None)

        await self.told(warm)


class ToolResult(Follow):
    """``POST api/sessions/{name}/tool_results``: the result of a call; with the last the turn.

    With ``wait`` there is no turn: it comes with what is said next.
    """

    async def post(self, name: str) -> None:
        """Take it; ``turn`` is null while results are outstanding."""
        flag = (bool, NONE)
        fields = self.fields(call_id=str, content=object, is_error=flag, wait=flag)
        session = self.session(name)
        give = session.add_tool_result if fields["wait"] else session.send_tool_result

        def result() -> dict[str, Any]:
            turn = give(fields["call_id"], fields["content"], bool(fields["is_error"]))
            return {"turn": None} if turn is None else self._told_turn(turn, None)

        await self.told(result)
