from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .models import write_models
from .place import Place, headless_place, kernel_place


@pytest.fixture(scope="package")
def models(tmp_path_factory: pytest.TempPathFactory, demo_path: Path) -> Path:
    """The folder of the models that hosts may load."""
    return write_models(tmp_path_factory.mktemp("models"), demo_path)


@pytest.fixture(scope="package")
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directories for caches and, until a place has one of its own, for state."""
    folder = tmp_path_factory.mktemp("clients")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXNB_STATE", str(folder / "state"))
        patch.setenv("MLXNB_CACHE", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="package", params=["headless", "kernel"])
def shared(
    request: pytest.FixtureRequest,
    own_state: Path,
    models: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    """A notebook server with a headless host, and one with a kernel that serves."""
    folder = tmp_path_factory.mktemp(request.param)
    make = headless_place if request.param == "headless" else kernel_place
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXNB_STATE", str(folder / "state"))
        with make(folder, models) as place:
            yield place


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    """The notebook port; what went over it is judged when the test has ended."""
    shared.judge()
    yield shared
    shared.judge()


@pytest.fixture
def fresh_state(own_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, and a state in it, for places that a test breaks."""
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    return tmp_path
