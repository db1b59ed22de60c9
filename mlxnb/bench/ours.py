"""Our engine, asked what the others are asked."""

from __future__ import annotations

from mlxnb.bench.bed import Bed, first_s, stamps
from mlxnb.bench.runs import Run


def run(bed: Bed, prompt: list[int], decoded: int, owner: str | None = None) -> Run:
    """Prefill a prompt and decode after it, greedily; with an ``owner`` KV is reused and kept."""
    request = bed.request(prompt, decoded + 1, owner, reuse=owner is not None)
    bed.run(request)
    times = stamps(request)
    return Run(first_s(request), times[-1] - times[0], decoded)
