"""People who talk to an engine, and parties at which several talk at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mlxnb.sessions.reply import Reply
from mlxnb.sessions.session import Session

if TYPE_CHECKING:
    from .world import World


@dataclass
class Person:
    """A session, and what was said in it: texts with the tokens allowed for their answers."""

    session: Session
    said: list[tuple[str, int]] = field(default_factory=list)
    heard: list[list[int]] = field(default_factory=list)

    def fork(self) -> Person:
        return Person(self.session.fork(), list(self.said), list(self.heard))


class Talk(NamedTuple):
    """Something said, and the answer on its way."""

    person: Person
    text: str
    tokens: int
    reply: Reply


class Party:
    """Requests that run together. What comes later comes before a certain call of the model."""

    def __init__(self, world: World) -> None:
        self.talks: list[Talk] = []
        self._world = world
        self._later: dict[int, list[Callable[[], None]]] = {}

    def at_random(self, act: Callable[[], None]) -> None:
        when = self._world.spy.calls + self._world.random.randint(1, 20)
        self._later.setdefault(when, []).append(act)

    def on_call(self, calls: int) -> None:
        for when in [w for w in self._later if w <= calls]:
            for act in self._later.pop(when):
                act()

    def begin(self, person: Person) -> None:
        """Somebody speaks; now and then a fork says the very same, or it is cancelled later."""
        world = self._world
        text, tokens = world.text(), world.some_tokens()
        speakers = [person]
        if world.random.random() < 0.3:
            speakers.append(person.fork())
            world.people.append(speakers[-1])
        for speaker in speakers:
            talk = world.begin(speaker, text, tokens)
            self.talks.append(talk)
            if world.random.random() < 0.3:
                self.at_random(talk.reply.cancel)
