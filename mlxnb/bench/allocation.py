"""Bytes that a decode step, a hit in the prefix cache and a join of a batch allocate."""

from __future__ import annotations

import time

import mlx.core as mx

from mlxnb.bench.requests import null_core, request, run
from mlxnb.engine.core import Core

LENGTH = 2048
"""Tokens of the prompt that is hit."""


def measure() -> dict[str, object]:
    """Bytes, beside those of one token's KV, in the null model (64 bytes a token)."""
    core = null_core()
    try:
        prompt = [1 + n % 250 for n in range(LENGTH)]
        run(core, [request(prompt, 1, owner="a")])
        return {
            "bytes of KV a token, null model": core.store.space("null").pool.token_bytes,
            "peak bytes a decode step": _steps(core),
            f"bytes copied, {LENGTH}-token hit, own session": _hit(core, prompt, "a"),
            f"bytes copied, {LENGTH}-token hit, another session": _hit(core, prompt, "b"),
            f"bytes copied, {LENGTH}-token row joins another": _join(core, prompt),
        }
    finally:
        core.stop()


def _steps(core: Core) -> int:
    """How far the peak rises over what is held, while one request decodes 200 tokens."""
    held = core.owner.call(_mark)
    run(core, [request([3, 4, 5], 200, owner="steps")])
    return core.owner.call(mx.get_peak_memory) - held


def _mark() -> int:
    mx.clear_cache()
    mx.reset_peak_memory()
    return mx.get_active_memory()


def _hit(core: Core, prompt: list[int], owner: str) -> int:
    before = core.store.copied_bytes
    run(core, [request([*prompt, 251], 2, owner=owner)])
    return core.store.copied_bytes - before


def _join(core: Core, prompt: list[int]) -> int:
    """What one request's row was copied when a second one came while it decoded."""
    first = request([*prompt, 252], 2000, owner="a")
    second = request([*prompt, 253], 4, owner="c")
    core.plan(first)
    core.submit(first)
    while first.clock.first_token is None:
        time.sleep(0.001)
    run(core, [second])
    first.cancelled = True
    while not first.done:
        time.sleep(0.001)
    return first.record.copied_bytes
