"""Blank text before real text (W35)."""

from __future__ import annotations

import pytest

from mlxnb.text.blank import BlankHold, without_blank_lines


def test_w35_blank_text_is_held_and_prefixed_to_real_text() -> None:
    hold = BlankHold()
    assert hold.feed(" ") == hold.feed("\n") == hold.feed("") == ""
    assert [hold.feed(piece) for piece in ("a", " ", "\n")] == [" \na", " ", "\n"]


def test_w35_blank_text_is_kept_where_asked_for() -> None:
    hold = BlankHold()
    hold.feed(" \n")
    assert (hold.flush(), hold.flush()) == (" \n", "")


def test_w35_blank_text_is_dropped_and_held_again() -> None:
    hold = BlankHold()
    hold.feed("a")
    hold.drop()
    assert [hold.feed("\n"), hold.feed("b")] == ["", "\nb"]


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("\n\nHi", "Hi"),
        (" Hi", "Hi"),
        ("\n    code", "    code"),
        (" \r\n\t\n  Hi\n\nyou", "  Hi\n\nyou"),
        ("Hi\n", "Hi\n"),
        ("\n\n", ""),
        ("", ""),
    ],
)
def test_blank_lines_go_and_indentation_stays(text: str, without: str) -> None:
    assert without_blank_lines(text) == without
