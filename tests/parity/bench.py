"""A model on a bench: what it is fed for whom."""

from __future__ import annotations

from pathlib import Path

from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.session import Session

from .spy import Spy, accounted, watch

NEVER = {token: -1000.0 for token in (2, *range(300, 316))}
"""End tokens, kept from being chosen: an answer is as long as it may be."""


class Bench:
    """An engine with one model, and what it is fed."""

    def __init__(self, engine: LocalEngine, folder: Path) -> None:
        self.engine = engine
        self.name = engine.load(folder, progress=False).name
        self.spy: Spy = watch(engine, self.name)

    def session(self, **options: object) -> Session:
        return self.engine.session(self.name, logit_bias=NEVER, **options)

    def fed(self, *turns: Turn) -> int:
        """Tokens fed since the last call; the turns' rows must account for all of them."""
        rows = [self.engine.ledger[turn.id] for turn in turns]
        accounted(self.spy, rows)
        total = self.spy.total
        if all(turn.tokens for turn in turns):
            assert total == sum(r.usage.prefill_tokens + r.decode_inputs for r in rows)
        self.spy.clear()
        return total
