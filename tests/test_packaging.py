"""What is installed holds what is looked for there."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

from mlxnb.cache import paged_launch

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BUILD = PROJECT["tool"]["scikit-build"]


def test_metal_kernels_are_found_where_a_wheel_has_them(tmp_path: Path) -> None:
    for place, source in BUILD["wheel"]["packages"].items():
        if source != "mlxnb":
            shutil.copytree(ROOT / source, tmp_path / place)
    shipped = paged_launch.source(tmp_path / "mlxnb")
    assert shipped == paged_launch.source(ROOT / "mlxnb")
    assert "paged_attention" in shipped


def test_the_stand_in_for_metal_is_not_shipped() -> None:
    assert "mlxnb/metal/shim/**" in BUILD["wheel"]["exclude"]
    assert (ROOT / "native/metal/shim/metal.h").is_file()


def test_only_linux_compiles_anything() -> None:
    (elsewhere,) = (o for o in BUILD["overrides"] if "platform-system" in o["if"])
    assert elsewhere["wheel"] == {"cmake": False, "platlib": False}
