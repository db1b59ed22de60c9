"""A cache of its own for each test, and what the tests' models share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from .tiny import byte_level


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for imported models."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("MLXNB_CACHE", str(folder))
    return folder


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return byte_level("smollm")


@pytest.fixture(autouse=True)
def mlx_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded is compared to the last bits: by MLX's own operations, without our kernels."""
    monkeypatch.setenv("MLXNB_NATIVE", "0")
