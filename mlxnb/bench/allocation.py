"""Bytes that a decode step, a hit in the prefix cache and a join of a batch allocate."""

from __future__ import annotations

import mlx.core as mx

from mlxnb.bench.bed import Bed
from mlxnb.bench.figures import Figure, Sheet

LENGTH = 2048
"""Tokens of the prompt that is hit."""


def measure(bed: Bed) -> list[Figure]:
    """Bytes, beside those of one token's KV, in the null model (64 bytes a token)."""
    sheet = Sheet("allocation")
    prompt = [1 + n % 250 for n in range(LENGTH)]
    bed.run(bed.request(prompt, 1, owner="a"))
    token = bed.core.store.space(bed.runtime.key).pool.token_bytes
    sheet.add("KV of a token, null model", "bytes", token)
    sheet.add("peak of a decode step", "bytes", _steps(bed))
    sheet.add(f"copied, {LENGTH:,}-token hit, own session", "bytes", _hit(bed, prompt, "a"))
    sheet.add(f"copied, {LENGTH:,}-token hit, another session", "bytes", _hit(bed, prompt, "b"))
    sheet.add(f"copied, {LENGTH:,}-token row joins another", "bytes", _join(bed, prompt))
    return sheet.figures()


def _steps(bed: Bed) -> int:
    """How far the peak rises over what is held, while one request decodes 200 tokens."""
    held = bed.core.owner.call(_mark)
    bed.run(bed.request([3, 4, 5], 200, owner="steps"))
    return bed.core.owner.call(mx.get_peak_memory) - held


def _mark() -> int:
    mx.clear_cache()
    mx.reset_peak_memory()
    return mx.get_active_memory()


def _hit(bed: Bed, prompt: list[int], owner: str) -> int:
    before = bed.core.store.copied_bytes
    bed.run(bed.request([*prompt, 251], 2, owner=owner))
    return bed.core.store.copied_bytes - before


def _join(bed: Bed, prompt: list[int]) -> int:
    """What one request's row was copied when a second one came while it decoded."""
    first = bed.request([*prompt, 252], 2000, owner="a")
    second = bed.request([*prompt, 253], 4, owner="c")
    bed.start(first)
    bed.until(first, 1)
    bed.run(second)
    bed.stop(first)
    return first.record.copied_bytes
