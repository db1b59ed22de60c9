"""An engine whose models, sessions and turns are in another process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxnb.errors import EngineClosed, HostRefused, InvalidOption
from mlxnb.host.control.rows import from_json, record_from_json, turn_from_json
from mlxnb.host.remote.session import RemoteSession
from mlxnb.host.remote.wire import Wire, as_it_was, part
from mlxnb.link.record import HostRecord
from mlxnb.models.resolve import canonical_name
from mlxnb.records.block_row import BlockRow
from mlxnb.records.explain import Explanation
from mlxnb.records.memory_row import MemoryRow
from mlxnb.records.session_row import SessionRow
from mlxnb.records.turn import Source, Turn
from mlxnb.sessions.engine import Engine
from mlxnb.sessions.exported import Exported
from mlxnb.sessions.loading import loading_bar
from mlxnb.sessions.options import Wanted, check_text, checked_budget
from mlxnb.sessions.registry import check_name
from mlxnb.sessions.session import Session

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.models.info import ModelInfo


class RemoteEngine(Engine):
    """The engine of a host, for this process's user.

    Its frames have the turns of all that talk to the host: other notebooks and HTTP clients.

    Parameters
    ----------
    record
        The host's.
    """

    def __init__(self, record: HostRecord) -> None:
        self.record = record
        self._wire: Wire | None = Wire(record)
        self._sessions: dict[str, RemoteSession] = {}

    def __repr__(self) -> str:
        return f"RemoteEngine(host={self.record.id!r}, kind={self.record.kind!r})"

    @property
    def wire(self) -> Wire:
        """The connection to the host."""
        if self._wire is None:
            raise EngineClosed("this engine was closed; mlxnb.engine() gives an open one")
        return self._wire

    # --- models -------------------------------------------------------------------------------

    def load(
        self,
        name: str | Path,
        adapter: str | Path | None = None,
        progress: bool = True,
        kv_bits: int | None = None,
    ) -> ModelInfo:
        """See `Engine.load`."""
        from mlxnb.models.info import ModelInfo

        body = {
            "name": _placed(name),
            "adapter": None if adapter is None else _placed(adapter),
            "kv_bits": kv_bits,
        }
        with self.wire.stream("/load", body) as events, loading_bar(str(name), progress) as show:
            for event, told in events:
                if event == "loaded":
                    return from_json(ModelInfo, told["model"])
                if event == "failed":
                    raise as_it_was(HostRefused(500, told))
                if show is not None:
                    show(told["done"], told["total"])
        raise EngineClosed("the host ended before the model was loaded")

    def unload(self, name: str) -> None:
        """See `Engine.unload`."""
        self.wire.post("/unload", {"name": name})

    # --- sessions -----------------------------------------------------------------------------

    def session(
        self,
        model: str | None = None,
        system: str | None = None,
        name: str | None = None,
        tools: list[Any] | None = None,
        **options: Any,
    ) -> RemoteSession:
        """See `Engine.session`."""
        wanted = Wanted.of(system, tools, options)
        wanted.options("")  # raises where a value cannot be
        if name is not None:
            check_name(name)
        named = dict(wanted.named)
        packed = named.pop("tools", None)
        body = {
            "model": None if model is None else _placed(model),
            "system": named.pop("system", None),
            "name": name,
            "tools": None if packed is None else [json.loads(tool) for tool in packed],
            "options": {**named, **wanted.sampling},
        }
        return self.adopt(self.wire.post("/sessions", body))

    def adopt(self, told: dict[str, Any]) -> RemoteSession:
        """The session that the host describes: the same object for the same session."""
        made = RemoteSession(self, told)
        there = self._sessions.get(made.name)
        if there is None or there.created_at != made.created_at:
            self._sessions[made.name] = there = made
        there.options = made.options  # its tools can be others by now
        return there

    def find_session(self, name: str) -> RemoteSession:
        """See `Engine.find_session`."""
        return self.adopt(self.wire.get(f"/sessions/{part(name)}"))

    def take_in_session(
        self, exported: Exported, name: str | None, model: str | None
    ) -> tuple[RemoteSession, str | None]:
        """See `Engine.take_in_session`."""
        if name is not None:
            check_name(name)
        told = self.wire.post(
            "/import",
            {
                "exported": exported.model_dump(mode="json"),
                "name": name,
                "model": None if model is None else _placed(model),
            },
        )
        return self.adopt(told), told["note"]

    def take_kept_session(self, name: str | None) -> tuple[RemoteSession, str | None]:
        """See `Engine.take_kept_session`."""
        told = self.wire.post("/restore", {"name": name})
        return self.adopt(told), told["note"]

    def remove_session(self, name: str, forget: bool = False) -> None:
        """See `Engine.remove_session`."""
        if (known := self._sessions.get(name)) is not None:
            known.check_free()
        self.wire.delete(f"/sessions/{part(name)}{'?forget=1' if forget else ''}")
        self._sessions.pop(name, None)

    # --- looking ------------------------------------------------------------------------------

    def turns(self, wide: bool = False) -> pd.DataFrame:
        """See `Engine.turns`."""
        from mlxnb.records.frames import turns_frame

        return turns_frame(map(record_from_json, self.wire.get("/turns")["turns"]), wide)

    def prefix_cache(self, show_text: bool | None = None, wide: bool = False) -> pd.DataFrame:
        """See `Engine.prefix_cache`."""
        from mlxnb.records.frames import prefix_frame

        blocks = self.wire.get(f"/prefix{_text(show_text)}")["blocks"]
        return prefix_frame(from_json(list[BlockRow], blocks), wide)

    def tokens(self, turn: Turn | str | None = None, show_text: bool | None = None) -> pd.DataFrame:
        """See `Engine.tokens`."""
        from mlxnb.records.token_row import TokenRow, tokens_frame

        rows = self.wire.get(f"/tokens/{_named(turn)}{_text(show_text)}")["tokens"]
        return tokens_frame(from_json(list[TokenRow], rows))

    def timeline(self, turn: Turn | str | None = None) -> pd.DataFrame:
        """See `Engine.timeline`."""
        from mlxnb.records.phase_row import PhaseRow, timeline_frame

        rows = self.wire.get(f"/timeline/{_named(turn)}")["timeline"]
        return timeline_frame(from_json(list[PhaseRow], rows))

    def sessions(self) -> pd.DataFrame:
        """See `Engine.sessions`."""
        from mlxnb.records.frames import sessions_frame

        rows = self.wire.get("/sessions")["sessions"]
        return sessions_frame(from_json(list[SessionRow], rows))

    def models(self) -> pd.DataFrame:
        """See `Engine.models`."""
        from mlxnb.models.info import ModelInfo
        from mlxnb.records.frames import models_frame

        return models_frame(from_json(list[ModelInfo], self.wire.get("/models")["models"]))

    def memory(self) -> pd.DataFrame:
        """See `Engine.memory`."""
        from mlxnb.records.frames import memory_frame

        return memory_frame([from_json(MemoryRow, self.wire.get("/memory")["memory"])])

    def explain(self, turn: Turn | str | None = None, show_text: bool | None = None) -> Explanation:
        """See `Engine.explain`."""
        path = f"/explain/{_named(turn)}{_text(show_text)}"
        return from_json(Explanation, self.wire.get(path)["explanation"])

    def status(self) -> pd.DataFrame:
        """One row about the host: where it listens, what is loaded, requests, in flight, queued."""
        from mlxnb.host.status import status_frame

        told = self.wire.get("/status")
        return status_frame(
            self.record,
            models=told["health"]["loaded"],
            health=told["health"]["status"],
            requests=told["requests"],
            in_flight=told["in_flight"],
            queued=told["health"]["waiting"],
        )

    # --- the prefix cache ---------------------------------------------------------------------

    def warm(
        self,
        what: str | Session,
        model: str | None = None,
        source: Source = "python",
        begins: str = "",
    ) -> Turn:
        """See `Engine.warm`."""
        check_text("begins", begins)
        body: dict[str, Any] = {"model": model, "source": source, "begins": begins}
        if not isinstance(what, Session):
            check_text("system", what)
            body["system"] = what
        elif self._sessions.get(what.name) is what:
            body["session"] = what.name
        else:
            raise InvalidOption(f"the session {what.name!r} belongs to another engine")
        return turn_from_json(self.wire.post("/warm", body)["turn"])

    def pin(self, block_id: str, pinned: bool = True) -> None:
        """See `Engine.pin`."""
        self.wire.post("/pin", {"block": block_id, "pinned": pinned})

    def evict(self, block_id: str) -> None:
        """See `Engine.evict`."""
        self.wire.post("/evict", {"block": block_id})

    @property
    def budget(self) -> int:
        """See `Engine.budget`."""
        return int(self.wire.get("/budget")["bytes"])

    @budget.setter
    def budget(self, value: int) -> None:
        self.wire.post("/budget", {"bytes": checked_budget(value)})

    def close(self) -> None:
        """Leave the host, which goes on; see `Engine.close`."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    @property
    def closed(self) -> bool:
        """See `Engine.closed`."""
        return self._wire is None


def _named(turn: Turn | str | None) -> str:
    """A turn as a part of a path."""
    return part(turn.id if isinstance(turn, Turn) else str(turn or "last"))


def _text(show: bool | None) -> str:
    return "" if show is None else f"?text={int(show)}"


def _placed(name: str | Path) -> str:
    """A folder as another process finds it, or a model's name."""
    canonical_name(name)  # raises where it can be none
    path = Path(name).expanduser()
    return str(path.absolute()) if path.exists() else str(name)
