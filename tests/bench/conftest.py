"""A tiny model in a folder, and an engine with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from models.tiny import byte_level, config_of, save_folder

from mlxnb.bench.bed import Bed
from mlxnb.bench.sizes import Sizes
from mlxnb.cache.paged_pool import in_place
from mlxnb.models.source import ModelSource

from .here import Here

SIZES = Sizes(
    contexts=(24, 64),
    decoded=3,
    prefix=64,
    system=48,
    message=5,
    long=96,
    short=32,
    rows=(1, 3),
    answer=4,
    rounds=2,
)
"""All lengths of prefixes are whole blocks."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noted about tiny models stays out of the user's cache."""
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    """A llama of 2 layers with 4 heads and 2 for KV, each of 16 numbers; matrices are float32."""
    tokenizer = byte_level("smollm")
    size = tokenizer.get_vocab_size()
    config = config_of("llama", size, max_position_embeddings=4096)
    folder = save_folder(tmp_path_factory.mktemp("models") / "tiny", config, tokenizer)
    return ModelSource(str(folder), folder)


@pytest.fixture
def bed(source: ModelSource) -> Iterator[Bed]:
    bed = Bed.open(source)
    yield bed
    bed.close()


@pytest.fixture
def paged(monkeypatch: pytest.MonkeyPatch) -> None:
    if not in_place():
        pytest.skip("this device has no kernels that read blocks in place")
    monkeypatch.setenv("MLXNB_PAGED", "1")


@pytest.fixture
def contiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_PAGED", "0")


@pytest.fixture
def here(bed: Bed) -> Here:
    return Here(bed)


@pytest.fixture
def sizes() -> Sizes:
    return SIZES
