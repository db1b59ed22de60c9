"""How much of everything is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

SPARE = 256
"""Tokens of a model's context that are left to messages and answers."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths are in tokens.

    Attributes
    ----------
    contexts
        Prompts whose prefill is measured, and the decode after them.
    decoded
        Tokens decoded there.
    prefix, system, message
        A conversation that is warm, a system text that two share, and what is said after each.
    long, short
        Two requests beside each other.
    rows
        Numbers of concurrent requests.
    answer
        Tokens that each of those decodes.
    rounds
        Times that each is measured.
    patience
        Seconds that one sample of another library may take; what would take longer is left out.
    """

    contexts: tuple[int, ...] = (128, 1000, 4000)
    decoded: int = 32
    prefix: int = 4000
    system: int = 1500
    message: int = 16
    long: int = 4000
    short: int = 500
    rows: tuple[int, ...] = (1, 2, 4, 8)
    answer: int = 64
    rounds: int = 5
    patience: float = 150.0

    def within(self, context: int | None) -> Sizes:
        """What of it a model with so many positions can take."""
        most = (context or 2**31) - SPARE - self.decoded - self.answer
        return replace(
            self,
            contexts=tuple(n for n in self.contexts if n <= most) or (max(1, most),),
            prefix=min(self.prefix, most),
            system=min(self.system, most),
            long=min(self.long, most),
            short=min(self.short, most),
        )


QUICK = Sizes(
    contexts=(128,),
    decoded=16,
    prefix=512,
    system=256,
    long=512,
    short=128,
    rows=(1, 4),
    answer=24,
    rounds=1,
    patience=30.0,
)
"""A rough look, in less than a minute for the demo model."""
