"""One JupyterLab a worker, one Chromium a module, and notebooks in it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from mlxnb.models.cachedir import cache_dir

from .lab import Lab, Notebook, chromium, lab_server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A running JupyterLab whose kernels find the demo model, and no host but themselves."""
    state = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXNB_CACHE", str(cache_dir()))
        patch.setenv("MLXNB_STATE", str(state))
        with lab_server(tmp_path_factory.mktemp("lab")) as running:
            yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """A browser with an empty profile."""
    with chromium(tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.fixture(scope="module")
def open_notebook(lab: Lab, browser: BrowserContext) -> Iterator[Callable[..., Notebook]]:
    """Opens a new notebook with a kernel of its own, in a page of its own."""
    opened: list[Notebook] = []

    def make(*sources: str) -> Notebook:
        name = f"notebook-{next(_numbers)}.ipynb"
        lab.write(name, *sources)
        opened.append(Notebook(lab, browser.new_page(), name))
        return opened[-1]

    yield make
    for notebook in opened:
        notebook.close()


@pytest.fixture(scope="module")
def notebook(open_notebook: Callable[..., Notebook]) -> Notebook:
    """One notebook for all tests of a module."""
    return open_notebook()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go: into the docs with MLXNB_SCREENSHOTS=1."""
    wanted = os.environ.get("MLXNB_SCREENSHOTS") == "1"
    return Path(__file__).parents[2] / "docs" / "images" if wanted else tmp_path
