"""An engine a test, closed after it, and models to load into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from models.tiny import byte_level, config_of, save_folder
from scripted import load_scripted, scripted_folder

from mlxnb.sessions.local import LocalEngine

MIB = 2**20


@pytest.fixture(autouse=True, scope="module")
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


@pytest.fixture
def say(engine: LocalEngine, tmp_path: Path) -> Callable[..., str]:
    """Load a scripted model that gives these answers; its name."""

    def load(*answers: str | list[int], **options: Any) -> str:
        folder = tmp_path / f"scripted-{len(list(tmp_path.iterdir()))}"
        return load_scripted(engine, scripted_folder(folder, answers, **options))

    return load


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model, with a vocabulary of bytes."""
    tokenizer = byte_level("smollm")
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return save_folder(folder, config_of("qwen3", tokenizer.get_vocab_size()), tokenizer)


@pytest.fixture
def tiny(engine: LocalEngine, tiny_folder: Path) -> str:
    return engine.load(tiny_folder, progress=False).name
