"""A short request beside a long one: what both hold, how long one waits, and the other pauses."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from itertools import pairwise

from mlxnb.bench.bed import Bed, first_s, gaps, stamps
from mlxnb.bench.figures import Figure, Sheet
from mlxnb.bench.sizes import Sizes

LASTING = 10_000
"""Tokens that each may decode; both are stopped when they have been looked at."""
BEFORE = 8
"""Tokens that the long one has decoded when the short one comes."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A round.

    Attributes
    ----------
    alone, both
        Bytes that the short and the long one hold by themselves, and that they hold together.
    first_alone_s, first_s, first_within_s
        Seconds to the short one's first token: by itself, beside the other that decodes, and when
        it comes while the other's prompt is computed.
    step_s, pause_s
        Seconds of the long one's usual step, and of its longest while the other began.
    """

    alone: tuple[int, int]
    both: int
    first_alone_s: float
    first_s: float
    first_within_s: float
    step_s: float
    pause_s: float


def measure(bed: Bed, sizes: Sizes) -> list[Figure]:
    """Bytes while both decode, and the times, over rounds."""
    how = "paged" if bed.runtime.paged else "contiguous"
    sheet = Sheet("beside")
    name = f"{sizes.short:,} beside {sizes.long:,}, {how}"
    for _ in range(sizes.rounds):
        found = beside(bed, sizes)
        sheet.add(name, "bytes", found.both)
        sheet.add(name, "× the sum of both alone", found.both / sum(found.alone))
        sheet.add(f"first token of {sizes.short:,} alone, {how}", "s", found.first_alone_s)
        sheet.add(
            f"first token of {sizes.short:,} beside {sizes.long:,}, {how}", "s", found.first_s
        )
        sheet.add(
            f"first token of {sizes.short:,} within a prefill of {sizes.long:,}, {how}",
            *("s", found.first_within_s),
        )
        sheet.add(f"step of {sizes.long:,} alone, {how}", "s", found.step_s)
        sheet.add(f"longest pause of {sizes.long:,} meanwhile, {how}", "s", found.pause_s)
    return sheet.figures()


def beside(bed: Bed, sizes: Sizes) -> Beside:
    """One round, on prompts of its own."""
    short_alone = bed.request(bed.prompts.draw(sizes.short), LASTING, reuse=False)
    bed.start(short_alone)
    bed.until(short_alone, 1)
    alone_short = bed.kv_bytes()
    bed.stop(short_alone)
    bed.forget()
    long = bed.request(bed.prompts.draw(sizes.long), LASTING, reuse=False)
    bed.start(long)
    bed.until(long, BEFORE)
    step = statistics.median(gaps(long))
    alone_long = bed.kv_bytes()
    short = bed.request(bed.prompts.draw(sizes.short), LASTING, reuse=False)
    bed.start(short)
    bed.until(short, 1)
    both = bed.kv_bytes()
    bed.stop(short)
    bed.stop(long)
    bed.forget()
    return Beside(
        (alone_short, alone_long),
        *(both, first_s(short_alone), first_s(short), _within(bed, sizes), step),
        _pause(stamps(long), short.clock.arrived, stamps(short)[0]),
    )


def _within(bed: Bed, sizes: Sizes) -> float:
    """Seconds to the short one's first token when the long one's first chunk has been computed."""
    long = bed.request(bed.prompts.draw(sizes.long), LASTING, reuse=False)
    bed.start(long)
    while not (long.record.prefill_chunks or long.done):
        time.sleep(0.001)
    short = bed.request(bed.prompts.draw(sizes.short), LASTING, reuse=False)
    bed.start(short)
    bed.until(short, 1)
    bed.stop(short)
    bed.stop(long)
    bed.forget()
    return first_s(short)


def _pause(times: list[float], begin: float, end: float) -> float:
    """The longest time between two tokens, of those that reach into a span."""
    return max((b - a for a, b in pairwise(times) if a < end and b > begin), default=0.0)
