"""``POST`` of what changes a host: models in and out, blocks pinned, the budget."""

from __future__ import annotations

from typing import Any

from mlxnb.host.control.events import Events
from mlxnb.host.control.route import Control
from mlxnb.host.control.rows import to_json
from mlxnb.models.info import ModelInfo
from mlxnb.models.resolve import resolve


class Load(Control):
    """``POST api/load``: a stream of ``progress`` (bytes done, in all) and at last ``loaded``.

    Here, and only here, a Hub id may be fetched: a notebook's user has asked for it by name.
    """

    async def post(self) -> None:
        """Load, telling how far it is."""
        fields = self.fields(name=str, adapter=(str, type(None)), kv_bits=(int, type(None)))
        events = Events(self)

        def load() -> dict[str, Any]:
            info = self._load(events, **fields)
            return {"model": to_json(info)}

        await events.run("loaded", load)

    def _load(
        self, events: Events, name: str, adapter: str | None, kv_bits: int | None
    ) -> ModelInfo:
        source = resolve(name, adapter=adapter, progress=False, kv_bits=kv_bits)
        return self.engine.load_source(source, progress=events.progress)


class Unload(Control):
    """``POST api/unload``."""

    async def post(self) -> None:
        """Give a model's memory back."""
        name = self.fields(name=str)["name"]
        await self.done(lambda: self.engine.unload(name))


class Pin(Control):
    """``POST api/pin``: keep a block of the prefix cache, or let it go."""

    async def post(self) -> None:
        """Pin or unpin."""
        fields = self.fields(block=str, pinned=bool)
        await self.done(lambda: self.engine.pin(fields["block"], fields["pinned"]))


class Evict(Control):
    """``POST api/evict``: let a block of the prefix cache go."""

    async def post(self) -> None:
        """Let it go."""
        block = self.fields(block=str)["block"]
        await self.done(lambda: self.engine.evict(block))


class Budget(Control):
    """``GET`` and ``POST api/budget``: bytes that the prefix cache may take."""

    async def get(self) -> None:
        """What it may take."""
        await self.told(lambda: {"bytes": self.engine.budget})

    async def post(self) -> None:
        """Set it."""
        size = self.fields(bytes=int)["bytes"]

        def change() -> dict[str, int]:
            self.engine.budget = size
            return {"bytes": self.engine.budget}

        await self.told(change)
