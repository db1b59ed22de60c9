"""llama-cpp-python, on the GGUF file that the model was imported from."""

from __future__ import annotations

import time
from pathlib import Path

from mlxnb.bench.runs import Run, timed
from mlxnb.container import cores

BATCH = 512
"""Tokens that it computes at a time; its default."""


class Llama:
    """A model in llama.cpp's hands.

    All cores compute, and flash attention is on.
    """

    def __init__(self, file: Path, context: int) -> None:
        from llama_cpp import Llama as Library

        threads = cores()
        self._library = Library(
            model_path=str(file),
            n_ctx=context,
            n_batch=BATCH,
            n_threads=threads,
            n_threads_batch=threads,
            flash_attn=True,
            verbose=False,
        )
        self.run([1, 2, 3, 4], 4)

    def run(self, prompt: list[int], decoded: int, keep: bool = False) -> Run:
        """Prefill a prompt and decode after it, greedily.

        Parameters
        ----------
        keep
            Go on from what it shares with the last sequence.
        """
        if not keep:
            self._library.reset()
        begin = time.perf_counter()
        return timed(self._library.generate(prompt, temp=0.0), begin, decoded)

    def close(self) -> None:
        """Give its memory back."""
        self._library.close()
