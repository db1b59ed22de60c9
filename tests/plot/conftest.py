"""matplotlib without a screen; each test's figures go with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    yield
    pyplot.close("all")
