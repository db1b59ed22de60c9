"""Tiers in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxnb.cache.disk.tier import DiskTier

from .world import QUICK

Make = Callable[..., DiskTier]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kv"


@pytest.fixture
def make(folder: Path) -> Iterator[Make]:
    """Open another tier in the folder."""
    made: list[DiskTier] = []

    def make_one(quota: int | None = None, **options: Any) -> DiskTier:
        made.append(DiskTier(folder, quota, **{"limits": QUICK, **options}))
        return made[-1]

    yield make_one
    for tier in made:
        tier.close()


@pytest.fixture
def tier(make: Make) -> DiskTier:
    return make()
