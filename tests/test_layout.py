"""Imports point one way, and each heavy library is reached from where it belongs."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mlxnb"

# Each folder of mlxnb and the folders that it may import. A new folder takes its place here.
MAY_IMPORT: dict[str, set[str]] = {
    "records": set(),
    "text": {"records"},
    "models": {"records"},
    "cache": {"records"},
    "engine": {"cache", "models", "text", "records"},
    "sessions": {"engine", "cache", "models", "text", "records"},
    "notebook": {"sessions", "engine", "cache", "models", "text", "records"},
}
# Modules directly under mlxnb that stand above all folders; `errors` stands below all.
TOP = {"__init__", "__main__", "cli", "bench"}
# Libraries that a folder does without, inside functions too.
WITHOUT: dict[str, set[str]] = {
    "records": {"mlx", "mlx_lm", "transformers", "IPython"},
    "text": {"mlx", "mlx_lm", "transformers", "IPython", "pandas"},
    "cache": {"mlx_lm", "transformers", "IPython"},
    "models": {"IPython"},
    "engine": {"IPython"},
    "sessions": {"IPython", "mlx", "mlx_lm"},
    "notebook": {"mlx", "mlx_lm", "transformers"},
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports_of(source: str, module: str, *, package: bool = False) -> Iterator[str]:
    """Yield the full name of everything that `source` imports, at any depth."""
    here = module.split(".") if package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            stem = ".".join(base + ([node.module] if node.module else []))
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(path: Path) -> set[str]:
    package = path.name == "__init__.py"
    return set(imports_of(path.read_text(encoding="utf-8"), name_of(path), package=package))


def folder_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def folders_in(imported: set[str]) -> set[str]:
    """The parts of mlxnb that these names are in; what is no folder is named as it is."""
    inside = {name.split(".")[1] for name in imported if name.startswith("mlxnb.")}
    return inside - {"errors", "__version__"}


def libraries_in(imported: set[str]) -> set[str]:
    return {name.split(".")[0] for name in imported}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import mlxnb.cache.pool", "mlxnb.cache.pool"),
        ("def f():\n    import mlx.core as mx", "mlx.core"),
        ("from mlxnb import sessions", "mlxnb.sessions"),
        ("from ..cache import pool", "mlxnb.cache.pool"),
        ("from . import owner", "mlxnb.engine.owner"),
        ("from .owner import Owner", "mlxnb.engine.owner.Owner"),
        ("if TYPE_CHECKING:\n    from mlx_lm.utils import load", "mlx_lm.utils.load"),
    ],
)
def test_imports_are_found_wherever_they_stand(line: str, expected: str) -> None:
    assert list(imports_of(line, "mlxnb.engine.request")) == [expected]


def test_every_folder_has_its_place() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(MAY_IMPORT) == set(WITHOUT)


def test_nothing_stands_beside_the_folders_but_the_top_and_errors() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} <= TOP | {"errors"}


def test_arrows_have_no_cycle() -> None:
    for folder, allowed in MAY_IMPORT.items():
        assert folder not in allowed
        for below in allowed:
            assert MAY_IMPORT[below] < allowed


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    folder = folder_of(path)
    if folder in TOP:
        return
    allowed = MAY_IMPORT.get(folder, set()) | {folder}
    assert folders_in(imported_by(path)) <= allowed


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_libraries_stay_where_they_belong(path: Path) -> None:
    unwanted = WITHOUT.get(folder_of(path), set())
    assert not libraries_in(imported_by(path)) & unwanted


def test_mlx_lm_is_reached_through_one_module_and_the_loaders() -> None:
    users = {name_of(path) for path in MODULES if "mlx_lm" in libraries_in(imported_by(path))}
    assert {name for name in users if not name.startswith("mlxnb.models.")} <= {
        "mlxnb.engine.mlxlm",
        "mlxnb.bench",  # measures against mlx-lm's own loop
        "mlxnb.cli",  # prints its version
    }


def test_every_library_used_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    used = set().union(*(libraries_in(imported_by(path)) for path in MODULES))
    used -= set(sys.stdlib_module_names) | {"mlxnb"}
    owners = packages_distributions()
    undeclared = {
        library
        for library in used
        if not {canonicalize_name(owner) for owner in owners.get(library, [])} & declared
    }
    assert undeclared == set()
