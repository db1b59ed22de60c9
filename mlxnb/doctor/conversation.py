"""Conversations with the demo model: answers over reused KV against runs without any.

``python -m mlxnb.doctor.conversation`` prints findings, a line each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from mlxnb import mlxlm
from mlxnb.doctor.finding import Finding
from mlxnb.models.demo import NAME, demo_ready
from mlxnb.records.turn import Turn, TurnRecord
from mlxnb.sessions.local import LocalEngine

SYSTEM = "You answer in one short sentence."
SAID = ("What is the capital of France?", "And of Italy?")
TOKENS = 16


def checks() -> Iterator[Finding]:
    """A conversation, then three at once that begin as it did; each token beside a cold run's."""
    if not demo_ready():
        yield Finding("demo model", None, f"not on this machine; to try it too: mlxnb pull {NAME}")
        return
    engine = LocalEngine()
    try:
        runtime = engine.core.runtime(engine.load(NAME, progress=False).name)
        kind = "KV in blocks" if runtime.paged else "contiguous KV"
        turns = _talk(engine)
        reused = sum(turn.cached_tokens for turn in turns)
        prompts = sum(turn.prompt_tokens for turn in turns)
        told = f"{reused} of {prompts} prompt tokens"
        yield Finding(f"demo model, {kind}: what is there is reused", reused > 0, told)
        records = [engine.ledger[turn.id] for turn in turns]
        worst = max(_off(engine, runtime.model, record) for record in records)
        told = f"{sum(len(r.output) for r in records)} tokens, worst {worst:.1e} of what is allowed"
        yield Finding(f"demo model, {kind}: answers as without reuse", worst <= 1, told)
        yield Finding(f"demo model, {kind}: rates", None, _rates(turns))
    finally:
        engine.close()


def _talk(engine: LocalEngine) -> list[Turn]:
    session = engine.session(NAME, system=SYSTEM)
    turns = [session.send(text, max_tokens=TOKENS) for text in SAID]
    others = [engine.session(NAME, system=SYSTEM) for _ in range(3)]
    replies = [o.reply(f"Say {n}.", max_tokens=TOKENS) for n, o in enumerate(others)]
    return turns + [reply.result() for reply in replies]


def _off(engine: LocalEngine, model: Any, record: TurnRecord) -> float:
    """How far a token's logit lies below a cold run's largest, in units of what is allowed.

    Allowed are 1e-4 in float32; in half precision 5 % of the largest logit, since one unit in the
    last place of bfloat16 is 0.8 % and layers add up.
    """
    tokens = mx.array([[*record.prompt, *record.output]])

    def run() -> tuple[np.ndarray[Any, Any], bool]:
        out = model(tokens, cache=mlxlm.new_caches(model))[0]
        return np.array(out.astype(mx.float32)), out.dtype == mx.float32

    logits, exact = engine.core.owner.call(run)
    rows = logits[len(record.prompt) - 1 : -1]
    gaps = rows.max(axis=1) - rows[np.arange(len(rows)), list(record.output)]
    allowed = 1e-4 if exact else 0.05 * np.abs(rows).max(axis=1)
    return float((gaps / allowed).max())


def _rates(turns: list[Turn]) -> str:
    cold, warm = turns[:2]
    parts = [f"first token {t.timing.ttft_s:.3f} s" for t in (cold, warm) if t.timing.ttft_s]
    seconds = warm.timing.decode_s
    if seconds:
        parts.append(f"{(warm.usage.output_tokens - 1) / seconds:.1f} tokens/s")
    return "cold and warm " + ", ".join(parts)


if __name__ == "__main__":
    for finding in checks():
        print(finding.line(), flush=True)
