"""A short soak; ``python -m soak`` is a long one."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from parity.families import FAMILIES

from mlxnb.cache.paged_pool import in_place
from mlxnb.sessions.local import LocalEngine

from .soak import EXPECTED, Soak

NAMES = ["llama", "qwen3", "gemma2"]
ROUNDS = 40


@pytest.fixture
def soak_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[str], Soak]:
    """A soak with three models, the first two of which are paged where that is wanted."""

    def make(paged: str) -> Soak:
        monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("MLXNB_PAGED", paged)
        caplog.set_level(logging.ERROR, "mlxnb")  # budgets are lowered on purpose
        gc.collect()
        gc.freeze()  # each unload collects, and what earlier tests have left stays anyway
        folders = [FAMILIES[name].save(tmp_path / name) for name in NAMES]
        return Soak(LocalEngine(budget=2**26), folders, f"short {paged}")

    return make


def missing(soak: Soak) -> set[str]:
    """What a soak is for and has not been yet."""
    seen = soak.seen
    reached = {
        "ends": {"length", "stop", "cancelled", "error"} <= set(seen.ends),
        "errors": set(EXPECTED) <= set(seen.errors),
        "ways": {"hit", "prefix_hit", "fresh"} <= set(seen.ways),
        "eviction": "evicted" in seen.misses,
        "joins": seen.joined,
        "unloads": seen.unloads,
        "pins": seen.pins,
        "turns": seen.turns >= 150,
    }
    return {what for what, yes in reached.items() if not yes}


@pytest.mark.timeout(1800)  # each round has a limit of its own
@pytest.mark.parametrize("paged", ["1", "0"], ids=["paged", "contiguous"])
def test_nothing_goes_wrong_whatever_is_done_at_once(
    soak_on: Callable[[str], Soak], paged: str
) -> None:
    soak = soak_on(paged)
    try:
        while missing(soak) and soak.seen.rounds < ROUNDS:
            soak.round()
    finally:
        soak.engine.close()
    assert not missing(soak), str(soak.seen)
    assert soak.seen.paged == (soak.seen.rounds if paged == "1" and in_place() else 0)
    assert soak.seen.slope(soak.seen.beyond) < 100_000
