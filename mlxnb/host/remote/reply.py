"""An answer of another process's engine on its way."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mlxnb.engine.events import Event, Piece, Prefill
from mlxnb.errors import HostGone, HostRefused, MlxnbError, RequestFailed
from mlxnb.host.control.rows import from_json, turn_from_json
from mlxnb.host.remote.wire import Told, Wire, as_it_was
from mlxnb.records.turn import Turn
from mlxnb.sessions.reply import Reply

POLL_S = 0.5
"""Seconds between two looks at whether another thread has read the end."""


class RemoteReply(Reply):
    """What a session of a host answers, read on a thread of its own.

    Parameters
    ----------
    path, body
        The request that begins it.
    settle
        Called with the turn when it has ended.

    Raises
    ------
    MlxnbError
        What the host raised instead of beginning.
    """

    def __init__(
        self, wire: Wire, path: str, body: Mapping[str, Any], settle: Callable[[Turn], None]
    ) -> None:
        self._wire, self._settle = wire, settle
        self._turn_id: str | None = None
        self._cancelled = False
        self._failure: Exception | None = None
        self._pieces: list[Piece] = []
        self._told: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._begun = threading.Event()
        self._refusal: Exception | None = None
        self._unwanted = False
        threading.Thread(
            target=self._read, args=(path, body), name="mlxnb-remote", daemon=True
        ).start()
        try:
            self._begun.wait()
        except BaseException:  # an interrupt: it begins all the same, and is stopped then
            self._unwanted = True
            self._begun.wait()
            if self._turn_id is not None:
                self.stop()
            raise
        if self._refusal is not None:
            raise self._refusal

    @property
    def turn_id(self) -> str:
        """See `Reply.turn_id`."""
        assert self._turn_id is not None, "a reply that was returned has begun"
        return self._turn_id

    def cancel(self) -> None:
        """See `Reply.cancel`."""
        if self._cancelled or self.turn is not None:
            return
        self._cancelled = True
        try:
            self._wire.post(f"/turns/{self.turn_id}/cancel")
        except MlxnbError:
            return  # it has ended, or the host has: the reader sees that

    def _events(self) -> Iterator[Event]:
        """See `Reply.events`."""
        while True:
            try:
                event = self._told.get(timeout=POLL_S)
            except queue.Empty:
                if self.turn is None:
                    continue
                break  # another thread has read the end
            if event is None:
                break
            yield event
        if self._failure is not None:
            failed = RequestFailed(str(self._failure))
            failed.turn = self.turn
            raise failed from self._failure

    # --- the reading thread -------------------------------------------------------------------

    def _read(self, path: str, body: Mapping[str, Any]) -> None:
        try:
            with self._wire.stream(path, body) as events:
                for told in events:
                    self._take(told)
            if self.turn is None:
                raise HostGone("its stream", "it ended before the turn did")
        except Exception as error:
            if self._turn_id is None:
                self._refusal = error
                self._begun.set()
                return
            self._lose(error)
        self._told.put(None)

    def _take(self, told: Told) -> None:
        name, payload = told
        if name == "begun":
            self._turn_id = str(payload["turn_id"])
            self._begun.set()
            if self._unwanted:  # who waited for it has gone, and need not have come this far
                self.cancel()
        elif name == "prefill":
            self._told.put(from_json(Prefill, payload))
        elif name == "piece":
            piece = from_json(Piece, payload)
            self._pieces.append(piece)
            self._told.put(piece)
        elif name == "turn":
            if payload.get("error") is not None:
                self._failure = as_it_was(HostRefused(500, payload))
            self._end(turn_from_json(payload["turn"]))
        else:
            raise as_it_was(HostRefused(500, payload))

    def _lose(self, error: Exception) -> None:
        """The host is gone: the turn is what came of it by now."""
        if self.turn is not None:
            return
        self._failure = error
        pieces = self._pieces
        self._end(
            Turn(
                id=self.turn_id,
                text="".join(p.text for p in pieces if p.kind == "text"),
                reasoning="".join(p.text for p in pieces if p.kind == "reasoning"),
                tool_calls=[p.call for p in pieces if p.kind == "tool_call" and p.call],
                finish_reason="error",
                error=f"{type(error).__name__}: {error}",
            )
        )

    def _end(self, turn: Turn) -> None:
        self._settle(turn)
        self.turn = turn
