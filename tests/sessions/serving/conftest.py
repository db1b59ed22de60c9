"""A service over a store of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlxnb.sessions.local import LocalEngine

from .world import World, scripted_source


@pytest.fixture
def world(engine: LocalEngine, tmp_path: Path) -> Iterator[World]:
    made = World(engine, tmp_path / "state" / "responses.sqlite")
    yield made
    made.service.close()


@pytest.fixture
def talker(world: World, tmp_path: Path) -> Callable[..., str]:
    """Load a scripted model that gives these answers, under the name that clients ask for."""

    def load(*answers: str | list[int], loaded: bool = True, **options: Any) -> str:
        folder = tmp_path / f"model-{len(world.sources)}"
        return world.add(scripted_source(folder, answers, **options), load=loaded)

    return load
