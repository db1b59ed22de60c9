"""docs/magics.md is what the magics take."""

from __future__ import annotations

from pathlib import Path

from mlxnb.notebook.commands import COMMANDS, VERBS
from mlxnb.notebook.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "magics.md"


def test_the_page_is_current() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(), "python -m mlxnb.notebook.reference > docs/magics.md"


def test_every_magic_and_verb_has_a_section() -> None:
    text = page()
    assert all(f"\n## `%{name}`\n" in text for name in COMMANDS)
    assert all(f"\n### `%mlx_session {verb}`\n" in text for verb in VERBS)
