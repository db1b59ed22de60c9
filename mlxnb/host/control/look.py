"""``GET`` of what the frames show."""

from __future__ import annotations

from typing import Any

from mlxnb import __version__
from mlxnb.errors import UnknownTurn
from mlxnb.host.control.route import Control
from mlxnb.host.control.rows import record_to_json, to_json
from mlxnb.records.explain import Explanation, explain
from mlxnb.records.phase_row import phase_rows
from mlxnb.records.token_row import TokenRow, token_rows
from mlxnb.records.turn import TurnRecord, shows_text
from mlxnb.sessions import views


class Status(Control):
    """``GET api/status``: how the host is, and what it does."""

    async def get(self) -> None:
        """Answer with its health and its traffic."""
        health = await self.context.blocking(self.context.service.health)
        traffic = self.context.traffic
        told = {"requests": traffic.requests, "in_flight": traffic.in_flight}
        self.answer({"version": __version__, "health": to_json(health), **told})


class Turns(Control):
    """``GET api/turns``: the records of all turns that the caller may see, oldest first."""

    async def get(self) -> None:
        """Answer with records, without their tokens."""
        await self.told(lambda: {"turns": [record_to_json(r) for r in self._seen()]})

    def _seen(self) -> list[TurnRecord]:
        sight = self.sight
        return [record for record in self.engine.ledger.rows() if sight.sees_turn(record)]


class Prefix(Control):
    """``GET api/prefix``: the blocks of the prefix cache.

    Texts are in them where ``text=1`` asks for them, or all turns are notebooks' own; never where
    another user's can be among them.
    """

    async def get(self) -> None:
        """Answer with block rows."""
        with_text = self.flag("text")
        await self.told(lambda: {"blocks": to_json(self._rows(with_text))})

    def _rows(self, with_text: bool | None) -> list[Any]:
        def shown() -> bool:
            turns = list(self.engine.ledger)
            return shows_text(with_text, turns) and all(map(self.sight.sees_turn, turns))

        return list(views.block_rows(self.engine.core, shown))


class Models(Control):
    """``GET api/models``: what is loaded, and what else is on this machine."""

    async def get(self) -> None:
        """Answer with facts about models."""
        await self.told(lambda: {"models": to_json(views.all_models(self.engine.core))})


class Memory(Control):
    """``GET api/memory``: what the engine holds and may hold, and what the system has left."""

    async def get(self) -> None:
        """Answer with a row."""
        await self.told(lambda: {"memory": to_json(self.engine.core.memory())})


class OneTurn(Control):
    """A route about one turn, or the ``last`` that the caller may see."""

    def record(self, turn_id: str) -> TurnRecord:
        """Its record; `UnknownTurn` if there is none for the caller."""
        sight, ledger = self.sight, self.engine.ledger
        if turn_id == "last":
            turn_id = next((r.turn_id for r in reversed(list(ledger)) if sight.sees_turn(r)), "")
        record = ledger[turn_id]
        if not sight.sees_turn(record):
            raise UnknownTurn(f"no turn {turn_id!r}")
        return record


class Tokens(OneTurn):
    """``GET api/tokens/{turn}``, or of the ``last``: its tokens; for texts see `Explain`."""

    async def get(self, turn_id: str) -> None:
        """Answer with token rows."""
        with_text = self.flag("text")
        await self.told(lambda: {"tokens": to_json(self._rows(turn_id, with_text))})

    def _rows(self, turn_id: str, with_text: bool | None) -> list[TokenRow]:
        record = self.record(turn_id)
        decode = views.decoder(self.engine.core, record.fingerprint)
        return list(token_rows(record, decode, shows_text(with_text, [record])))


class Timeline(OneTurn):
    """``GET api/timeline/{turn}``, or of the ``last``: what it did when."""

    async def get(self, turn_id: str) -> None:
        """Answer with phase rows."""
        await self.told(lambda: {"timeline": to_json(list(phase_rows(self.record(turn_id))))})


class Explain(OneTurn):
    """``GET api/explain/{turn}``, or of the ``last``.

    Texts are shown of turns that came from notebooks; ``text=1``: of all, ``text=0``: of none.
    """

    async def get(self, turn_id: str) -> None:
        """Answer with an explanation."""
        with_text = self.flag("text")
        await self.told(lambda: {"explanation": to_json(self._explained(turn_id, with_text))})

    def _explained(self, turn_id: str, with_text: bool | None) -> Explanation:
        record = self.record(turn_id)
        before = self.engine.ledger.before(record.turn_id)
        earlier = [other for other in before if self.sight.sees_turn(other)]
        decode = views.decoder(self.engine.core, record.fingerprint)
        return explain(record, earlier, decode, show_text=shows_text(with_text, [record]))
