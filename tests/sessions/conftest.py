"""An engine a test, closed after it, and a cache folder that is nobody's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxnb.sessions.local import LocalEngine

MIB = 2**20


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where engines note what they tried out."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXNB_CACHE", str(folder))
        yield folder


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    made = LocalEngine(budget=64 * MIB)
    yield made
    made.close()
