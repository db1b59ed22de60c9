"""Models that can be rewound, over both kinds of cache; ``python -m soak`` is a long one."""

from __future__ import annotations

import pytest

from mlxnb.cache.paged_pool import in_place

from .short import Make, run, soak_on

__all__ = ["soak_on"]

NAMES = "llama qwen3 gemma2"


@pytest.mark.timeout(1800)  # each round has a limit of its own
@pytest.mark.parametrize("paged", ["1", "0"], ids=["paged", "contiguous"])
def test_nothing_goes_wrong_whatever_is_done_at_once(
    soak_on: Make, paged: str, capsys: pytest.CaptureFixture[str]
) -> None:
    soak = soak_on(NAMES, paged)
    run(soak, capsys)
    assert soak.seen.paged == (soak.seen.rounds if paged == "1" and in_place() else 0)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("paged", ["1", "0"], ids=["paged", "contiguous"])
def test_nor_where_disk_memory_and_threads_fail(
    soak_on: Make, paged: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(soak_on(f"{NAMES} llama:8", paged, faulty=True), capsys)
