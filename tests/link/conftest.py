from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own."""
    folder = tmp_path / "state"
    monkeypatch.setenv("MLXNB_STATE", str(folder))
    return folder
