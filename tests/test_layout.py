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

# Each part of mlxnb and the parts that it may import: folders, and the adapter of mlx-lm. A new
# part takes its place here first; wire, link, host and jupyter have theirs before they exist.
MODEL_SIDE = {"engine", "cache", "models", "text", "records", "mlxlm", "native"}
MAY_IMPORT: dict[str, set[str]] = {
    "mlxlm": set(),
    "native": set(),
    "records": set(),
    "link": set(),
    "text": {"records"},
    "models": {"records", "native"},
    "cache": {"records", "mlxlm", "native"},
    "engine": MODEL_SIDE - {"engine"},
    "sessions": MODEL_SIDE | {"link"},
    "wire": MODEL_SIDE | {"sessions"},
    "host": MODEL_SIDE | {"sessions", "wire", "link"},
    "notebook": MODEL_SIDE | {"sessions", "wire", "link", "host"},
    "jupyter": {"wire", "records", "link"},
}
# Modules directly under mlxnb that stand above all parts, and those that stand below all.
TOP = {"__init__", "cli", "quickstart", "bench", "doctor", "plot"}
BELOW = {"container", "errors"}
# Libraries that a part does without, inside functions too.
WITHOUT: dict[str, set[str]] = {
    "container": {"mlx", "mlx_lm", "transformers", "pandas", "IPython", "tornado"},
    "errors": {"mlx", "mlx_lm", "transformers", "pandas", "IPython", "tornado"},
    "mlxlm": {"IPython", "pandas"},
    "native": {"mlx_lm", "transformers", "pandas", "IPython", "tornado"},
    "records": {"mlx", "mlx_lm", "transformers", "IPython"},
    "link": {"mlx", "mlx_lm", "transformers", "pandas", "IPython", "tornado"},
    "text": {"mlx", "mlx_lm", "transformers", "pandas", "IPython"},
    "models": {"IPython"},
    "cache": {"mlx_lm", "transformers", "IPython"},
    "engine": {"IPython", "tornado"},
    "sessions": {"mlx", "mlx_lm", "IPython", "tornado"},
    "wire": {"mlx", "mlx_lm", "IPython", "tornado"},
    "notebook": {"mlx", "mlx_lm", "transformers"},
    "jupyter": {"mlx", "mlx_lm", "transformers", "pandas"},
}
# What mlx-lm documents for others to call; all else of it is reached through mlxnb/mlxlm.py.
PUBLIC_OF_MLX_LM = {"utils", "sample_utils"}
# A bench runs mlx-lm's own loops beside ours.
BESIDES = {"bench": {"generate"}}
# Libraries of an optional extra, and the part that does without them.
EXTRA = {"bench": {"llama_cpp", "matplotlib"}, "plot": {"matplotlib"}}
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


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def parts_in(imported: set[str]) -> set[str]:
    """The parts of mlxnb that these names are in."""
    inside = [name.split(".") for name in imported if name.split(".")[0] == "mlxnb"]
    return {name[1] if name[1:] else "__init__" for name in inside} - BELOW - {"__version__"}


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


def test_every_part_has_its_place() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    assert folders - TOP <= set(MAY_IMPORT)
    assert modules - TOP - BELOW <= set(MAY_IMPORT)


def test_arrows_have_no_cycle() -> None:
    for part, allowed in MAY_IMPORT.items():
        assert part not in allowed
        assert all(part not in MAY_IMPORT[below] for below in allowed)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    if part in TOP:
        return
    allowed = MAY_IMPORT.get(part, set()) | {part}
    assert parts_in(imported_by(path)) <= allowed


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_libraries_stay_where_they_belong(path: Path) -> None:
    unwanted = WITHOUT.get(part_of(path), set())
    assert not libraries_in(imported_by(path)) & unwanted


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_internals_of_mlx_lm_are_touched_in_one_module(path: Path) -> None:
    if part_of(path) == "mlxlm":
        return
    names = [name.split(".") for name in imported_by(path)]
    used = [name[1:] for name in names if name[0] == "mlx_lm"]
    public = PUBLIC_OF_MLX_LM | BESIDES.get(part_of(path), set())
    assert {"".join(name[:1]) for name in used} <= public
    assert not [name for name in used if any(part.startswith("_") for part in name)]


def test_every_library_used_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    used = set[str]()
    for path in MODULES:
        used |= libraries_in(imported_by(path)) - EXTRA.get(part_of(path), set())
    used -= set(sys.stdlib_module_names) | {"mlxnb"}
    owners = packages_distributions()
    undeclared = {
        library
        for library in used
        if not {canonicalize_name(owner) for owner in owners.get(library, [])} & declared
    }
    assert undeclared == set()
