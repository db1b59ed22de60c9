"""Models on this machine, by name alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxnb.models.discover import sources


def test_the_demo_model_is_among_them_when_it_has_been_fetched(
    demo_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLXNB_CACHE", str(demo_path.parent))
    assert "demo" in [source.name for source in sources()]
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path))
    assert "demo" not in [source.name for source in sources()]
