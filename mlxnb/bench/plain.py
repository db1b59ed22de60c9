"""mlx-lm's own loop, on MLX's own operations.

It gets the weights as this engine would, in float32 on a CPU.
"""

from __future__ import annotations

import time
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step

from mlxnb.bench.runs import Run, timed
from mlxnb.models.load import build
from mlxnb.models.source import ModelSource

ENVIRONMENT = {"MLXNB_NATIVE": "0", "MLXNB_PAGED": "0"}
"""What its process must have, for the model to be left as mlx-lm has it."""


class Plain:
    """A model in mlx-lm's hands."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @classmethod
    def open(cls, source: ModelSource) -> Plain:
        """Load a model and warm it up."""
        plain = cls(build(source).model)
        plain.run([1, 2, 3, 4], 1)
        return plain

    def run(self, prompt: list[int], decoded: int, keep: bool = False) -> Run:
        """Prefill a prompt and decode after it, greedily; ``keep`` is nothing it can do."""
        begin = time.perf_counter()
        steps = generate_step(mx.array(prompt), self._model, max_tokens=decoded + 1)
        run = timed(steps, begin, decoded)
        mx.clear_cache()
        return run
