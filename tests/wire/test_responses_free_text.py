"""C33 and W32: a custom tool's input is streamed, whatever JSON it is written in."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.wire.responses.free_text import LONGEST_HEAD, FreeText


def read(raw: str, cuts: list[int]) -> list[str]:
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    reader = FreeText()
    return [reader.feed(raw[a:b]) for a, b in pairwise(places)]


@given(
    st.lists(
        st.one_of(
            st.characters(codec="utf-8"),
            st.sampled_from(["\\", '"', "\\ud83d", "\\u00", "ud83d", "😀", "\n", "}"]),
        ),
        max_size=12,
    ).map("".join),
    st.booleans(),
    st.sampled_from([None, 2]),
    st.lists(st.integers(0, 300), max_size=40),
)
def test_any_cutting_gives_the_string(
    said: str, ascii_only: bool, indent: int | None, cuts: list[int]
) -> None:
    raw = json.dumps({"input": said}, ensure_ascii=ascii_only, indent=indent)
    assert "".join(read(raw, cuts)) == said


def test_text_comes_as_soon_as_it_is_known() -> None:
    reader = FreeText()
    pieces = ['{"inp', 'ut": "ab', "c\\", "nd", "\\u00", 'e9"}']
    assert [reader.feed(piece) for piece in pieces] == ["", "ab", "c", "\nd", "", "é"]


def test_a_character_in_two_halves_comes_whole() -> None:
    reader = FreeText()
    assert [reader.feed(p) for p in ['{"input": "\\ud83d', '\\ude00"}']] == ["", "😀"]


def test_a_lone_half_is_no_character() -> None:
    assert "".join(read('{"input": "\\ud83dx"}', [])) == "\ufffdx"


@pytest.mark.parametrize(
    "raw", ['{"other": "x"}', '{"input": 5}', '["input"]', '{"a": 1, "input": "x"}', ""]
)
def test_another_shape_gives_nothing(raw: str) -> None:
    assert "".join(read(raw, [3, 5])) == ""


def test_another_shape_is_given_up() -> None:
    reader = FreeText()
    assert reader.feed(" " * (LONGEST_HEAD + 1)) == ""
    assert reader.feed('{"input": "x"}') == ""
