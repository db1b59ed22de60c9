"""What a decode step costs beyond mlx-lm's own loop, with a model that computes nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from mlxnb.bench.null_model import null_model
from mlxnb.bench.requests import null_core, request, run
from mlxnb.engine.core import Core

PROMPT = [5, 6, 7, 8]


def measure(steps: int, rounds: int) -> dict[str, object]:
    """Milliseconds a step for 1 and 8 rows: mlx-lm's loop, the engine, and the difference."""
    core = null_core()
    figures: dict[str, object] = {}
    try:
        for rows, theirs in ((1, _generate_step), (8, _batch_generator)):
            ours = partial(_engine, core, rows, steps)
            mine, other = _alternate(ours, partial(theirs, core, steps), rounds)
            name = f"decode step, null model, {rows} row{'s' if rows > 1 else ''}"
            difference = [a - b for a, b in zip(mine, other, strict=True)]
            figures[f"{name}: mlx-lm's own loop, ms"] = statistics.median(other)
            figures[f"{name}: the engine, ms"] = statistics.median(mine)
            figures[f"{name}: overhead median … worst, ms"] = (
                statistics.median(difference),
                max(difference),
            )
    finally:
        core.stop()
    return figures


def _alternate(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _engine(core: Core, rows: int, steps: int) -> float:
    """Milliseconds a step of requests submitted together."""
    requests = [request([9 + n, *PROMPT], steps) for n in range(rows)]
    begin = time.perf_counter()
    run(core, requests)
    return 1e3 * (time.perf_counter() - begin) / steps


def _generate_step(core: Core, steps: int) -> float:
    """mlx-lm's loop for one sequence, on the same thread."""
    from mlx_lm.generate import generate_step

    def loop() -> float:
        model: Any = null_model().model
        begin = time.perf_counter()
        for _ in generate_step(mx.array([9, *PROMPT]), model, max_tokens=steps):
            pass
        return 1e3 * (time.perf_counter() - begin) / steps

    return core.owner.call(loop)


def _batch_generator(core: Core, steps: int) -> float:
    """mlx-lm's continuous batching with 8 rows, on the same thread."""
    from mlx_lm.generate import BatchGenerator

    def loop() -> float:
        generator = BatchGenerator(null_model().model, max_tokens=steps)
        begin = time.perf_counter()
        generator.insert([[9 + n, *PROMPT] for n in range(8)])
        while generator.next_generated():
            pass
        generator.close()
        return 1e3 * (time.perf_counter() - begin) / steps

    return core.owner.call(loop)
