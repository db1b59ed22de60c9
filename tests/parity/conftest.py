"""Folders of tiny models, made once, and engines that load them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlxnb.engine.runtime import Rate
from mlxnb.sessions.local import LocalEngine

from .bench import Bench
from .families import FAMILIES

MIB = 2**20


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family's tiny model."""
    made: dict[str, Path] = {}
    parent = tmp_path_factory.mktemp("families")

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = FAMILIES[name].save(parent / name)
        return made[name]

    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noted about tiny models stays out of the user's cache."""
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def contiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each live cache is by itself, as on devices that do not read blocks in place."""
    monkeypatch.setenv("MLXNB_PAGED", "0")


@pytest.fixture
def engine(cache: None) -> Iterator[LocalEngine]:
    """An engine with nothing loaded."""
    engine = LocalEngine(budget=64 * MIB)
    yield engine
    engine.close()


@pytest.fixture
def random_chunks(monkeypatch: pytest.MonkeyPatch) -> random.Random:
    """Prefill in chunks of random sizes; seed what is returned."""
    sizes = random.Random(0)
    monkeypatch.setattr(Rate, "chunk", property(lambda rate: sizes.choice((1, 3, 8, 17, 40, 200))))
    return sizes


@pytest.fixture(params=["llama", "llama contiguous", "qwen3", "gemma2"])
def bench(
    request: pytest.FixtureRequest,
    engine: LocalEngine,
    folder_of: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    """Gemma 2 is neither paged nor batched: what holds for one at a time holds for it too."""
    family, _, caches = request.param.partition(" ")
    monkeypatch.setenv("MLXNB_PAGED", "0" if caches else "1")
    return Bench(engine, folder_of(family))


@pytest.fixture(params=["paged", "contiguous"])
def caches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Live caches are tables of blocks where the device reads those in place, or by themselves."""
    monkeypatch.setenv("MLXNB_PAGED", "0" if request.param == "contiguous" else "1")


@pytest.fixture
def batching(caches: None, engine: LocalEngine, folder_of: Callable[[str], Path]) -> Bench:
    return Bench(engine, folder_of("llama"))


@pytest.fixture
def slow_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Prefill eight tokens at a time."""
    with monkeypatch.context() as patch:
        patch.setattr(Rate, "chunk", property(lambda rate: 8))
        yield
