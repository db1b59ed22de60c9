"""A random life of an engine: what people do with sessions, in any order, and what must hold."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from mlxnb.errors import RequestFailed
from mlxnb.records.spans import forks
from mlxnb.records.turn import Turn, TurnRecord
from mlxnb.sessions.local import LocalEngine

from .party import Party, Person, Talk
from .settled import assert_settled, held
from .spy import assert_parity, watch

WORDS = [
    "the",
    "quick",
    "brown fox",
    "jumps over",
    "123",
    "lazy dogs;",
    "def main():",
    "naïve 漢",
    "it's",
]


class Computed(NamedTuple):
    """Tokens whose KV was filed once, under a salt; ``sure``: nobody else can have computed it.

    ``anchors`` are where a model that cannot be rewound must have left checkpoints: where this
    turn began, the forks and the last token but one of what it computed of its prompt, its end.
    """

    salt: str
    tokens: list[int]
    sure: bool
    anchors: set[int]

    def serves(self, prompt: list[int], anchored: bool) -> int:
        """How many tokens of a prompt can be reused of this."""
        shared = min(_shared(prompt, self.tokens), len(prompt) - 1)
        if not anchored:
            return shared
        return max((anchor for anchor in self.anchors if anchor <= shared), default=0)


class World:
    """Sessions of one model, doing things at random.

    Parameters
    ----------
    budgets
        Bytes that the cache may have, changed now and then; a single number is taken for plenty.
    """

    def __init__(
        self,
        engine: LocalEngine,
        folder: Path,
        seed: str,
        budgets: list[int],
        kv_bits: int | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.budgets = budgets
        self.roomy = len(budgets) == 1
        self.engine = engine
        self.engine.core.budget = budgets[0]
        self.name = self.engine.load(folder, progress=False, kv_bits=kv_bits).name
        self.spy = watch(self.engine, self.name)
        self.people: list[Person] = []
        self.turns: list[str] = []
        self.pinned: list[str] = []
        self.done: list[str] = []
        self.refused = 0
        self.widest = 0
        self.evicted = 0
        self.computed: list[Computed] = []

    # --- what can happen ----------------------------------------------------------------------

    def step(self) -> None:
        """One thing, then everything is looked at."""
        if len(self.people) < 2:
            self.new()
        acts = [self.say, self.say, self.meet, self.meet, self.meet, self.fork, self.rewind]
        acts += [self.new, self.leave, self.rebudget, self.reset, self.warm, self.pin]
        act = self.random.choice(acts)
        self.done.append(act.__name__)
        act()
        self.look()

    def text(self) -> str:
        """Words; two texts often share how they begin."""
        start = " ".join(WORDS[: self.random.randint(0, len(WORDS))])
        more = self.random.choices(WORDS, k=self.random.choice((1, 4, 30)))
        return " ".join([start, *more])

    def new(self) -> None:
        """A new session, often with a system text that another one has too."""
        known = [p.session.options.system for p in self.people]
        system = self.random.choice([None, self.text(), *known])
        salt = self.random.choice(["", "", "", "pepper"])
        reuse = self.random.random() < 0.9
        session = self.engine.session(self.name, system=system, cache_salt=salt, reuse=reuse)
        self.people.append(Person(session))

    def someone(self) -> Person:
        return self.random.choice(self.people)

    def say(self) -> None:
        self.listen([self.begin(self.someone(), self.text(), self.some_tokens())])

    def some_tokens(self) -> int:
        return self.random.choice((1, 2, 5, 12, 24))

    def begin(self, person: Person, text: str, tokens: int) -> Talk:
        return Talk(person, text, tokens, person.session.reply(text, max_tokens=tokens))

    def listen(self, talks: list[Talk]) -> None:
        """Wait for answers, and note those that were taken into the history."""
        for talk in talks:
            turn = talk.reply.outcome()
            self.turns.append(turn.id)
            if turn.finish_reason == "error":
                assert str(turn.error).startswith("BudgetExceeded"), turn.error
                assert not self.roomy
                self.refused += 1
            elif turn.finish_reason != "cancelled":
                talk.person.said.append((talk.text, talk.tokens))
                talk.person.heard.append(turn.tokens)

    def meet(self) -> None:
        """Several speak at once: some come later, some are cancelled, some say the very same."""
        party = Party(self)
        self.spy.on_call = party.on_call
        guests = self.random.sample(self.people, min(len(self.people), self.random.randint(2, 6)))
        with held(self.engine):
            party.begin(guests[0])
            for guest in guests[1:]:
                if self.random.random() < 0.5:
                    party.begin(guest)
                else:
                    party.at_random(lambda guest=guest: party.begin(guest))
        for act in (self.rebudget, self.pin):
            if self.random.random() < 0.2:
                party.at_random(act)
        while party.talks:
            talks, party.talks = party.talks, []
            self.listen(talks)
        self.spy.on_call = lambda calls: None

    def fork(self) -> Person:
        person = self.someone()
        self.people.append(person.fork())
        return self.people[-1]

    def rewind(self) -> None:
        person = self.someone()
        if person.session.turns:
            turns = self.random.randint(1, person.session.turns)
            person.session.rewind(turns)
            del person.said[-turns:], person.heard[-turns:]

    def reset(self) -> None:
        person = self.someone()
        person.session.reset()
        person.said, person.heard = [], []

    def leave(self) -> None:
        while len(self.people) > 6:
            person = self.someone()
            self.people.remove(person)
            self.engine.remove_session(person.session.name)

    def rebudget(self) -> None:
        self.unpin()
        self.engine.core.budget = self.random.choice(self.budgets)

    def warm(self) -> None:
        try:
            what = self.random.choice([self.text(), self.someone().session])
            turn = self.engine.warm(what, model=self.name)
        except RequestFailed as error:
            turn = error.turn
        assert isinstance(turn, Turn)
        self.turns.append(turn.id)

    def pin(self) -> None:
        names = self.engine.prefix_cache().block_id.tolist()
        if names and len(self.pinned) < 3:
            self.pinned.append(self.random.choice(names))
            self.engine.pin(self.pinned[-1])
        else:
            self.unpin()

    def unpin(self) -> None:
        there = set(self.engine.prefix_cache().block_id)
        for name in set(self.pinned) & there:
            self.engine.pin(name, pinned=False)
        self.pinned = []

    # --- what must hold -----------------------------------------------------------------------

    def look(self) -> None:
        """The turns of the last step, and the cache after it."""
        assert_settled(self.engine)
        self.widest = max(self.widest, *self.spy.rows, 0)
        records = [self.engine.ledger[turn] for turn in self.turns]
        shares = assert_parity(self.engine, self.spy, records)
        for record in records:
            self.look_at_reuse(record, alone=len(records) == 1)
        all_reuse = all(record.reuse_enabled for record in records)
        for record in records:
            if record.reuse_enabled:
                fresh = len(shares[record.turn_id]) - record.recomputed_tokens
                end = record.usage.cached_tokens + fresh
                tokens = [*record.prompt, *record.output][:end]
                # of two that were cancelled in the same prefill, nobody can say who did what, nor
                # of any where positions are unknown
                sure = bool(record.output) or (all_reuse and not self.spy.blind)
                if self.spy.blind and not record.output:
                    tokens = list(record.prompt)
                self.computed.append(Computed(record.salt, tokens, sure, _anchors(record, end)))
        self.turns = []

    def look_at_reuse(self, record: TurnRecord, alone: bool) -> None:
        """Cached is what earlier turns computed of this prompt: never more, with room no less."""
        cached = record.usage.cached_tokens
        if not record.reuse_enabled:
            assert cached == 0
            return
        prompt, anchored = list(record.prompt), not record.rewindable
        earlier = [run for run in self.computed if run.salt == record.salt]
        most = max((run.serves(prompt, False) for run in earlier), default=0)
        assert not alone or cached <= most
        best = max((run.serves(prompt, anchored) for run in earlier if run.sure), default=0)
        if cached < best and record.finish_reason not in ("cancelled", "error"):
            assert not self.roomy, f"{record.turn_id}: {cached} cached, {best} were there"
            self.evicted += 1

    def replay(self, person: Person) -> None:
        """Everything said in a session again, without reuse: the very same answers."""
        self.unpin()
        self.engine.core.budget = 2**30
        options = person.session.options
        again = self.engine.session(self.name, system=options.system, reuse=False)
        for (text, tokens), heard in zip(person.said, person.heard, strict=True):
            turn = again.send(text, max_tokens=tokens)
            assert turn.tokens == heard
            assert turn.cached_tokens == 0
        self.engine.remove_session(again.name)


def _anchors(record: TurnRecord, end: int) -> set[int]:
    """Where a turn must have left checkpoints, had it to."""
    start, last = record.usage.cached_tokens, len(record.prompt) - 1
    inside = {mark for mark in (*forks(record.spans), last) if start < mark <= min(end, last)}
    return inside | {start, end}


def _shared(a: list[int], b: list[int]) -> int:
    """Tokens that both begin with."""
    pairs = zip(a, b, strict=False)
    return next((n for n, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
