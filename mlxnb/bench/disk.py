"""First tokens of prompts whose KV is on disk, against computing it."""

from __future__ import annotations

import time

from mlxnb.bench.bed import Bed, first_s
from mlxnb.bench.figures import Figure, Sheet
from mlxnb.bench.sizes import Sizes

WRITTEN_S = 60.0
"""Seconds in which what was computed is on disk."""


def measure(bed: Bed, sizes: Sizes) -> list[Figure]:
    """A prompt is computed, forgotten in memory, and asked for again.

    Parameters
    ----------
    bed
        One with a disk tier.
    """
    sheet = Sheet("disk")
    size = f"{sizes.prefix:,} tokens"
    for _ in range(sizes.rounds):
        prompt = bed.prompts.draw(sizes.prefix)
        cold = bed.request(prompt, 1, owner="one")
        bed.run(cold)
        sheet.add(f"{size}, until they are on disk", "s", _written(bed))
        bed.forget()
        warm = bed.request(prompt, 1, owner="two")
        bed.run(warm)
        bed.forget()
        sheet.add(f"{size}, cold", "s", first_s(cold))
        sheet.add(f"{size}, from disk", "s", first_s(warm))
        sheet.add(f"{size}, from disk", "× faster than cold", first_s(cold) / first_s(warm))
        sheet.add(f"{size}, from disk", "tokens from disk", float(warm.record.disk_tokens))
    return sheet.figures()


def _written(bed: Bed) -> float:
    """Seconds until all that was computed is on disk."""
    begin, core = time.perf_counter(), bed.core
    assert core.disk is not None, "a bed with a disk tier"
    while core.owner.call(lambda: core.store.write_behind(running=False)):
        continue
    core.disk.flush(WRITTEN_S)
    return time.perf_counter() - begin
