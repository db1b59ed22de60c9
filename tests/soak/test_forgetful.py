"""Models that cannot be rewound, beside others: windows, states, and states alone."""

from __future__ import annotations

import pytest

from .short import SECONDS, Make, run, soak_on
from .soak import LITTLE

__all__ = ["soak_on"]


@pytest.mark.timeout(1800)  # each round has a limit of its own
def test_nothing_goes_wrong_whatever_is_done_at_once(
    soak_on: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    run(soak_on("gemma3_text qwen3_next mamba2 lfm2", budgets=LITTLE), capsys)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("names", ["gemma3_text mamba2 llama:8", "qwen3_next lfm2 llama"])
def test_nor_where_disk_memory_and_threads_fail(
    soak_on: Make, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(soak_on(names, faulty=True, budgets=LITTLE), capsys, 1.5 * SECONDS)
