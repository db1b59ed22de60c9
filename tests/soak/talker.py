"""One of those who talk to an engine at the same time, each in sessions of their own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from parity.world import WORDS

from mlxnb.errors import (
    ContextOverflow,
    EngineDied,
    ModelUnloaded,
    NotEnoughMemory,
    NothingLoaded,
    QueueFull,
    RequestFailed,
    ShortOfMemory,
)
from mlxnb.records.turn import Turn, TurnRecord
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.session import Session

AWAY = (NothingLoaded, ModelUnloaded, QueueFull, EngineDied, ShortOfMemory, NotEnoughMemory)
"""What may be raised where models, memory or the engine's thread go in the midst of an act."""
SOON_S = 0.03
"""Seconds within which a cancel comes: an answer of a tiny model takes about as long."""
BEGINNINGS = [" ".join(WORDS[:count]) for count in (1, 4, 9)]
BEGINNINGS += [" ".join(WORDS * repeats) for repeats in (2, 4)]


class Talker:
    """Sessions, and what is done with them at random.

    Parameters
    ----------
    models
        Gives the names of the models that are loaded now.
    """

    def __init__(self, engine: LocalEngine, models: Callable[[], list[str]], seed: str) -> None:
        self.random = random.Random(seed)
        self.sessions: list[Session] = []
        self.turns: list[str] = []
        self.forgotten = 0
        self.copies: dict[str, TurnRecord] = {}
        self._engine = engine
        self._models = models

    def act(self) -> None:
        """One thing; a model may go in the midst of it, and the queue may be full."""
        acts = [self.say, self.say, self.say, self.say, self.leave_off]
        acts += [self.new, self.fork, self.rewind, self.reset, self.warm]
        try:
            self.random.choice(acts)()
        except AWAY:
            time.sleep(0.01)

    # --- what can be done ---------------------------------------------------------------------

    def text(self) -> str:
        """Words; many begin alike, few are long."""
        more = self.random.choices(WORDS, k=self.random.choice((1, 3, 10, 30)))
        return " ".join([self.random.choice(["", *BEGINNINGS]), *more])

    def someone(self) -> Session:
        """A session whose model is there."""
        there = self._models()
        self._forget([s for s in self.sessions if s.model not in there])
        return self.random.choice(self.sessions) if self.sessions else self.new()

    def new(self) -> Session:
        """A session; with others it may share a system text, a salt and a model."""
        while len(self.sessions) > 4:
            self._forget([self.random.choice(self.sessions)])
        models = self._models()
        if not models:
            raise NothingLoaded("all are gone for a moment")
        session = self._engine.session(
            self.random.choice(models),
            system=self.random.choice([None, *BEGINNINGS]),
            cache_salt=self.random.choice(["", "", "", "pepper"]),
            reuse=self.random.random() < 0.9,
        )
        self.sessions.append(session)
        return session

    def _forget(self, sessions: list[Session]) -> None:
        for session in sessions:
            forget = self.random.random() < 0.3
            self.sessions.remove(session)
            if forget:  # its turns are still to be compared
                own = [record for record in self._engine.ledger if record.session == session.name]
                self.copies |= {record.turn_id: replace(record) for record in own}
            self._engine.remove_session(session.name, forget)
            self.forgotten += forget

    def say(self) -> None:
        """Say something; some is cancelled, some is answered twice."""
        session = self.someone()
        samples = 2 if self.random.random() < 0.1 else 1
        tokens = self.random.choice((1, 2, 5, 16, 40))
        try:
            reply = session.reply(self.text(), max_tokens=tokens, n=samples)
        except ContextOverflow:
            session.reset()
            return
        if self.random.random() < 0.25:
            threading.Timer(self.random.random() * SOON_S, reply.cancel).start()
        turn = reply.outcome()
        self._note(turn, *turn.choices[1:])

    def leave_off(self) -> None:
        """Read some of an answer, and let go of the rest."""
        session = self.someone()
        try:
            stream = session.stream(self.text(), max_tokens=40)
        except ContextOverflow:
            session.reset()
            return
        wanted = self.random.randint(0, 12)
        try:
            for number, piece in enumerate(stream):
                if number >= wanted or isinstance(piece, Turn):
                    break
        except RequestFailed:
            pass
        stream.close()
        if session.last is not None:
            self._note(session.last)

    def fork(self) -> None:
        self.sessions.append(self.someone().fork())

    def rewind(self) -> None:
        session = self.someone()
        if session.turns:
            session.rewind(self.random.randint(1, session.turns))

    def reset(self) -> None:
        self.someone().reset()

    def warm(self) -> None:
        session = self.someone()
        try:
            turn = self._engine.warm(self.random.choice([session, self.text()]), session.model)
        except ContextOverflow:
            session.reset()
        except RequestFailed as failed:
            assert isinstance(failed.turn, Turn)
            self._note(failed.turn)
        else:
            self._note(turn)

    def _note(self, *turns: Turn) -> None:
        self.turns += [turn.id for turn in turns]
