"""What all tests share: no network, no deadline, and the demo model's folder."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Before any test module imports huggingface_hub, which reads it once.
os.environ["HF_HUB_OFFLINE"] = "1"
# What one test computes is not to be found on disk by another; those of the disk say so.
os.environ["MLXNB_DISK"] = "0"
# Hosts, keys and stored responses of these tests alone, the notebooks' kernels included.
if "PYTEST_XDIST_WORKER" in os.environ or "MLXNB_STATE" not in os.environ:
    os.environ["MLXNB_STATE"] = tempfile.mkdtemp(prefix="mlxnb-tests-")

# Nothing is timed: how long an example takes depends on what else the machine does.
settings.register_profile("mlxnb", deadline=None)
settings.load_profile("mlxnb")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files run each in one process, the longest first; see `distribution`."""
    if config.getoption("dist") != "loadfile":
        return None
    from distribution import Units

    return Units(config, log)


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of collections: they stay, and engines collect as they end."""
    _leave_out()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave out what pytest has noted of a file's tests as well, before the next file begins."""
    if nextitem is not None and nextitem.path != item.path:
        _leave_out()


def _leave_out() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def demo_path() -> Path:
    """The folder of the demo model, which `make setup` has fetched."""
    from mlxnb.models.demo import demo_path

    return demo_path(fetch=False, progress=False)
