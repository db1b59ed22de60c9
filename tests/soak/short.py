"""A short soak for the tests: how long it goes on, and what it must have seen by then."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mlxnb.sessions.local import LocalEngine

from .faults import Faults
from .models import make
from .soak import BUDGETS, EXPECTED, Soak

ROUNDS = 120
"""Within which everything has been seen, on however slow a machine."""
SECONDS = float(os.environ.get("MLXNB_SOAK_SECONDS", "15"))
"""For which it goes on at least."""

Make = Callable[..., Soak]


@pytest.fixture
def soak_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Make]:
    """Make a soak of models, the rewindable ones of which are paged where that is wanted."""
    made: list[Soak] = []

    def make_soak(
        names: str,
        paged: str = "1",
        faulty: bool = False,
        budgets: Sequence[int] = BUDGETS,
    ) -> Soak:
        monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("MLXNB_PAGED", paged)
        # budgets are lowered, stores damaged and threads killed on purpose
        caplog.set_level(logging.CRITICAL if faulty else logging.ERROR, "mlxnb")
        gc.collect()
        gc.freeze()  # each unload collects, and what earlier tests have left stays anyway
        models = [make(name, tmp_path) for name in names.split()]
        seed = f"short {names} {paged}"
        faults = Faults(tmp_path, seed) if faulty else None
        engine = LocalEngine(budget=2**26) if faults is None else faults.engine
        made.append(Soak(engine, models, seed, faults, budgets))
        return made[-1]

    yield make_soak
    for soak in made:
        soak.engine.close()


def missing(soak: Soak) -> set[str]:
    """What a soak is for and has not been yet."""
    seen = soak.seen
    reached = {
        "ends": {"length", "stop", "cancelled", "error"} <= set(seen.ends),
        "errors": set(EXPECTED) <= set(seen.errors),
        "ways": {"hit", "prefix_hit", "fresh"} <= set(seen.ways),
        # what cannot be rewound is missed for that, whatever became of it
        "eviction": {"evicted", "not_rewindable"} & set(seen.misses),
        "joins": seen.joined,
        "unloads": seen.unloads,
        "pins": seen.pins,
        "turns": seen.turns >= 150,
        "forgotten": seen.forgotten,
    }
    if soak.faults is not None:
        known = {"wipe", "damage", "garbage", "fail", "press", "kill"}
        reached |= {
            "faults": known <= set(seen.faults),
            "deaths": "EngineDied" in seen.errors,
            "pressure": "ShortOfMemory" in seen.errors,
            "disk": seen.disk,
            "restarts": seen.engines > 1,
        }
    return {what for what, yes in reached.items() if not yes}


def run(soak: Soak, capsys: pytest.CaptureFixture[str], seconds: float = SECONDS) -> None:
    """Let it go on until everything has been seen, and for so long; then show what was."""
    until = time.monotonic() + seconds
    while time.monotonic() < until or (missing(soak) and soak.seen.rounds < ROUNDS):
        soak.round()
    with capsys.disabled():
        print(f"\n{soak.seen}")
    assert not missing(soak), str(soak.seen)
    assert soak.seen.slope(soak.seen.beyond) < 100_000
