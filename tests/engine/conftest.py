"""An engine for each test, with one tiny model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mlxnb.cache.paged_pool import in_place

from .running import Engine


@pytest.fixture
def contiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each live cache is by itself, as on devices that do not read blocks in place."""
    monkeypatch.setenv("MLXNB_PAGED", "0")


@pytest.fixture
def paged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live caches are tables of the pool's blocks, where the device reads them in place."""
    monkeypatch.setenv("MLXNB_PAGED", "1")
    if not in_place():
        pytest.skip("this device has no kernels that read blocks in place")


@pytest.fixture
def bare() -> Iterator[Engine]:
    """An engine with nothing loaded."""
    engine = Engine(budget=64 * 2**20)
    yield engine
    engine.close()


@pytest.fixture
def engine(bare: Engine) -> Engine:
    """An engine with a tiny llama."""
    bare.install()
    return bare
