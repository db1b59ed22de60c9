"""The tables of a page on request fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
TREATMENTS = ("honoured", "no effect", "refused")


def treatments(page: str, *headings: str) -> dict[str, str]:
    """What the tables below these headings say of each field."""
    parts = re.split(r"^## ", (DOCS / page).read_text("utf-8"), flags=re.M)
    text = "".join(part for part in parts if part.startswith(headings))
    rows = re.findall(r"^\| `([\w.]+)` \| ([\w ]+) \|", text, re.M)
    found = dict(rows)
    assert len(found) == len(rows), "a field is told of once"
    assert set(found.values()) <= set(TREATMENTS)
    return found


def with_field(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The body with one more field, be it inside of others that are there or not."""
    name, _, rest = path.partition(".")
    inner = body.get(name)
    held = dict(inner) if isinstance(inner, dict) else {}
    return {**body, name: with_field(held, rest, value) if rest else value}
