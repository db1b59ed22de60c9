"""One prompt and its answer, as whoever is measured ran them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds until the first token, and for the ``decoded`` ones after it."""

    first_s: float
    decode_s: float
    decoded: int

    @property
    def decode_tps(self) -> float:
        """Tokens a second after the first."""
        return self.decoded / self.decode_s

    @property
    def step_s(self) -> float:
        """Seconds between two tokens."""
        return self.decode_s / self.decoded


def whole(pieces: Iterable[object], begin: float) -> Run:
    """Take all pieces of an answer as they come; there are two at least.

    Parameters
    ----------
    begin
        When the prompt was given, on ``time.perf_counter``'s scale.
    """
    stamps = [time.perf_counter() for _ in pieces]
    assert len(stamps) > 1, "an answer that is measured has some pieces"
    return Run(stamps[0] - begin, stamps[-1] - stamps[0], len(stamps) - 1)


def timed(tokens: Iterable[object], begin: float, decoded: int) -> Run:
    """As `whole`, of one token and ``decoded`` more; there may be others behind them."""
    run = whole(islice(tokens, 1 + decoded), begin)
    assert run.decoded == decoded, "an answer that is measured has the tokens asked for"
    return run
