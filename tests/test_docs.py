"""The pages name what there is: columns, reasons, pages and files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from mlxnb.records import frames
from mlxnb.records.diagnosis import REASONS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def named(page: str, heading: str = "") -> list[str]:
    """What the first column of a page's tables names, below a heading that begins so."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    part = next(p for p in re.split(r"^## ", text, flags=re.M) if p.startswith(heading))
    cells = re.findall(r"^\| (`[^|]+) \|", part, re.M)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


@pytest.mark.parametrize(
    ("frame", "columns"),
    [
        ("turns", frames.TURNS),
        ("prefix_cache", frames.BLOCKS),
        ("sessions", frames.SESSIONS),
        ("models", frames.MODELS),
        ("memory", frames.MEMORY),
    ],
)
def test_the_page_on_frames_has_every_column(frame: str, columns: Mapping[str, str]) -> None:
    found = named("frames.md", f"`engine.{frame}()`")
    assert sorted(found) == sorted(columns)


def test_the_page_on_reuse_has_every_reason() -> None:
    assert sorted(named("reuse.md", "`miss_reason`")) == sorted(REASONS)


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    assert set(re.findall(r"^- .*\(([\w-]+\.md)\)", index, re.M)) == {
        page.name for page in PAGES if page.name != "README.md"
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_the_map_holds_every_part_of_the_package_once() -> None:
    text = (ROOT / "README.md").read_text("utf-8").partition("## Map")[2]
    parts = {p.name for p in (ROOT / "mlxnb").iterdir() if (p / "__init__.py").exists()}
    mapped = re.findall(r"`mlxnb/(\w+)/`", text)
    assert sorted(mapped) == sorted(parts)
