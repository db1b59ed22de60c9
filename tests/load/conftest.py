"""Each test has directories of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records, sockets, keys and stored responses of this test alone."""
    folder = tmp_path / "state"
    monkeypatch.setenv("MLXNB_STATE", str(folder))
    return folder
