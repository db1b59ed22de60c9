"""Bytes of KV: what conversations with a common prefix hold, and what a hit allocates."""

from __future__ import annotations

from mlxnb.bench.bed import Bed
from mlxnb.bench.figures import Figure, Sheet
from mlxnb.bench.sizes import Sizes
from mlxnb.engine.request import Request

ANSWER = 8
"""Tokens of each answer."""


def measure(bed: Bed, sizes: Sizes) -> list[Figure]:
    """What MLX holds after a conversation and after a second one that begins alike.

    Then the first goes on. All of it is counted: one round tells.
    """
    how = "paged" if bed.runtime.paged else "contiguous"
    sheet = Sheet("KV bytes")
    prefix = bed.prompts.draw(sizes.prefix)
    first = bed.request(prefix + bed.prompts.draw(sizes.message), ANSWER, "one")
    one, _ = _after(bed, first)
    second = bed.request(prefix + bed.prompts.draw(sizes.message), ANSWER, "two")
    two, other = _after(bed, second)
    _, own = _after(bed, bed.request(first.tokens + bed.prompts.draw(sizes.message), 1, "one"))
    bed.forget()

    size = f"{sizes.prefix:,}"
    sheet.add(f"a conversation of {size}, {how}", "bytes", one)
    sheet.add(f"two with {size} common, {how}", "bytes", two)
    sheet.add(f"two with {size} common, {how}", "× one", two / one)
    sheet.add(f"copied by a hit of {size}, another session, {how}", "bytes", other)
    sheet.add(f"copied by a hit of {size}, own session, {how}", "bytes", own)
    return sheet.figures()


def _after(bed: Bed, request: Request) -> tuple[int, int]:
    """Run a request: bytes of KV that are held then, and bytes of KV that were copied for it."""
    copied = bed.core.store.copied_bytes
    bed.run(request)
    return bed.kv_bytes(), bed.core.store.copied_bytes - copied
