"""What a cell of pure Python that never waits costs a model's decoding.

One runs in another process, as beside a shared host, and one in the model's own, as in a kernel
that has loaded it. Cores are not what this is about: the engine leaves one to the cell.
"""

from __future__ import annotations

import statistics
import threading
from contextlib import nullcontext

from mlxnb.bench.apart import Bench
from mlxnb.bench.bed import Bed, gaps
from mlxnb.bench.figures import Figure, Sheet
from mlxnb.bench.sizes import Sizes
from mlxnb.bench.together import PROMPT
from mlxnb.container import cores


def spare_core() -> dict[str, str]:
    """Variables with which an engine leaves a core to others."""
    return {"MLXNB_THREADS": str(max(1, cores() - 1))}


class Cell:
    """Computes in pure Python from ``__enter__`` to ``__exit__``, on a thread of its own.

    Attributes
    ----------
    runs
        Whether it does.
    """

    def __init__(self) -> None:
        self.runs = False

    def __enter__(self) -> None:
        self.runs = True
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.runs = False
        self._thread.join()

    def _work(self) -> None:
        number = 1
        while self.runs:
            number = (number * 1_103_515_245 + 12_345) % 2**31


def measure(bench: Bench, cell: Bench, sizes: Sizes) -> list[Figure]:
    """Decode steps while nothing, a cell elsewhere, and a cell in the same process computes.

    Parameters
    ----------
    bench
        Of a `Bed`, with `spare_core`.
    cell
        Of a `Cell`.
    """
    sheet = Sheet("busy")
    for _ in range(sizes.rounds):
        quiet = bench(step, sizes.answer)
        cell(Cell.__enter__)
        elsewhere = bench(step, sizes.answer)
        cell(Cell.__exit__)
        within = bench(step, sizes.answer, busy=True)
        sheet.add("a step, no cell runs", "ms", quiet)
        for what, busy in (
            ("a step, a cell runs in another process", elsewhere),
            ("a step, a cell runs in the same process", within),
        ):
            sheet.add(what, "ms", busy)
            sheet.add(what, "× no cell", busy / quiet)
    return sheet.figures()


def step(bed: Bed, tokens: int, busy: bool = False) -> float:
    """Milliseconds of a decode step; ``busy``: while a cell runs in this process."""
    request = bed.request(bed.prompts.draw(PROMPT), tokens, reuse=False)
    with Cell() if busy else nullcontext():
        bed.run(request)
    return 1e3 * statistics.median(gaps(request))
