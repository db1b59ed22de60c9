"""What a decode step costs beyond mlx-lm's own loop, with a model that computes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from mlxnb.bench.bed import Bed
from mlxnb.bench.figures import Figure, Sheet
from mlxnb.bench.null_model import null_model
from mlxnb.engine.core import Core

PROMPT = [5, 6, 7, 8]


def measure(bed: Bed, steps: int, rounds: int) -> list[Figure]:
    """Milliseconds a step for 1 and 8 rows: mlx-lm's loop, the engine, and the difference."""
    sheet = Sheet("overhead")
    for rows, loop in ((1, _generate_step), (8, _batch_generator)):
        ours, theirs = partial(_engine, bed, rows, steps), partial(loop, bed.core, steps)
        name = f"decode step, null model, {rows} row{'s' if rows > 1 else ''}"
        for mine, other in _alternate(ours, theirs, rounds):
            sheet.add(name, "ms", mine)
            sheet.add(name, "ms", other, who="mlx-lm")
            sheet.add(f"{name}, beyond mlx-lm's", "ms", mine - other)
    return sheet.figures()


def _alternate(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    ours(), theirs()
    return [(ours(), theirs()) for _ in range(rounds)]


def _engine(bed: Bed, rows: int, steps: int) -> float:
    """Milliseconds a step of requests submitted together."""
    requests = [bed.request([9 + n, *PROMPT], steps) for n in range(rows)]
    begin = time.perf_counter()
    bed.run(*requests)
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
