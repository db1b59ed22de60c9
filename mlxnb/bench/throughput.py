"""Prefill and decode rates of a model, with the native kernels and with MLX's own operations.

Each measurement is a process of its own, since the kernels are switched for a whole process; ours
and the other's run in turn.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

CHUNK = 512
"""Tokens of a prefill chunk."""
DECODED = 24
"""Tokens that are decoded at each context length."""


def measure(model: str, contexts: list[int], rounds: int, versus: bool) -> dict[str, object]:
    """Tokens a second, median and range over rounds; ratios over MLX's own where ``versus``."""
    figures: dict[str, object] = {}
    for context in contexts:
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(_apart(model, context, native=True))
            if versus:
                theirs.append(_apart(model, context, native=False))
        for phase in ("prefill", "decode"):
            name = f"{phase} at {context:,} tokens"
            mine = [sample[phase] for sample in ours]
            middle = statistics.median(mine)
            figures[f"{name}, tokens/s, median … range"] = (middle, min(mine), max(mine))
            if versus:
                other = statistics.median(sample[phase] for sample in theirs)
                figures[f"{name}, MLX's own operations, tokens/s"] = other
                figures[f"{name}, ratio"] = middle / other
    return figures


def _apart(model: str, context: int, native: bool) -> dict[str, float]:
    """One measurement in a process of its own."""
    environment = os.environ | {"MLXNB_NATIVE": "1" if native else "0"}
    command = [sys.executable, "-m", "mlxnb.bench.throughput", model, str(context)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rates: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return rates


def rates(model: str, context: int) -> dict[str, float]:
    """Tokens a second of prefilling ``context`` tokens and of decoding after them."""
    import mlx.core as mx

    from mlxnb import mlxlm
    from mlxnb.models.load import build
    from mlxnb.models.resolve import resolve

    loaded: Any = build(resolve(model, progress=False)).model
    tokens = mx.array([[100 + 7 * n % 5000 for n in range(context)]])
    _prefill(loaded, tokens[:, :32], mlxlm.new_caches(loaded))
    caches = mlxlm.new_caches(loaded)
    begin = time.perf_counter()
    _prefill(loaded, tokens, caches)
    prefilled = time.perf_counter()
    token = tokens[:, -1:]
    for _ in range(DECODED):
        token = mx.argmax(loaded(token, cache=caches)[:, -1:], axis=-1)
        mx.eval(token)
    ended = time.perf_counter()
    return {"prefill": context / (prefilled - begin), "decode": DECODED / (ended - prefilled)}


def _prefill(model: Any, tokens: Any, caches: Any) -> None:
    from mlxnb import mlxlm

    for at in range(0, tokens.shape[1], CHUNK):
        model(tokens[:, at : at + CHUNK], cache=caches)
        mlxlm.evaluate(caches)


if __name__ == "__main__":
    print(json.dumps(rates(sys.argv[1], int(sys.argv[2]))))
