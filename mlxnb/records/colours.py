"""One colour for each origin of a token and each phase of a turn, for plots and widgets alike.

Fills are Okabe and Ito's, which people with any colour vision tell apart
(https://jfly.uni-koeln.de/color/); the ink on each has a contrast of at least 4.5 (WCAG 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass

_BLACK, _WHITE = "#000000", "#ffffff"


@dataclass(frozen=True, slots=True)
class Colour:
    """``fill`` of an area, and ``ink`` of text on it: ``#rrggbb``."""

    fill: str
    ink: str = _BLACK


ORIGINS = {
    "hot": Colour("#e69f00"),
    "memory": Colour("#009e73"),
    "disk": Colour("#56b4e9"),
    "computed": Colour("#c4c4c4"),
    "generated": Colour("#cc79a7"),
}
"""Where the KV of a token came from: an earlier turn's live KV, blocks, the disk, or new."""

PHASES = {
    "pre_inference": Colour("#f0e442"),
    "resolve": Colour("#0072b2", _WHITE),
    "load_wait": Colour("#882255", _WHITE),
    "queue": Colour("#d55e00"),
    "prefill": ORIGINS["computed"],
    "decode": ORIGINS["generated"],
}
"""The phases of a turn in their order; prefill computes tokens, decode generates them."""

REUSED = ("hot", "memory", "disk")
"""Origins of tokens that were not computed."""
