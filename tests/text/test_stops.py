"""Stop sequences: earliest match, longest on a tie, nothing else changed (W39)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxnb.text.stops import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    text = "".join(matcher.feed(piece) for piece in pieces) + matcher.flush()
    return text, matcher.matched


def by_hand(stops: list[str], text: str) -> tuple[str, str | None]:
    """The obvious way, over the whole text."""
    for start in range(len(text)):
        for stop in sorted(filter(None, stops), key=len, reverse=True):
            if text.startswith(stop, start):
                return text[:start], stop
    return text, None


@pytest.mark.parametrize(
    ("stops", "pieces", "text", "matched"),
    [
        pytest.param(["STOP"], ["go STOP on"], "go ", "STOP", id="inside one piece"),
        pytest.param(["STOP"], ["go S", "TO", "P on"], "go ", "STOP", id="over three pieces"),
        pytest.param(["STOP"], ["ST", "OB STOP"], "STOB ", "STOP", id="after a false start"),
        pytest.param(["aab"], ["a", "a", "a", "b"], "a", "aab", id="false start is a beginning"),
        pytest.param(["b", "ab"], ["xab"], "x", "ab", id="earliest"),
        pytest.param(["bc", "abcd"], ["abcd"], "", "abcd", id="earliest ends later"),
        pytest.param(["bc", "abcd"], ["abc", "x"], "a", "bc", id="earlier one proves false"),
        pytest.param(["ab", "abc"], ["ab", "c"], "", "abc", id="longest on a tie"),
        pytest.param(["ab", "abc"], ["ab", "x"], "", "ab", id="longer one proves false"),
        pytest.param(["ab", "abc"], ["xab"], "x", "ab", id="longer one does not come"),
        pytest.param(["STOP"], ["go ST"], "go ST", None, id="half of one at the end"),
        pytest.param(["\n"], ["one\ntwo"], "one", "\n", id="a line's end"),
        pytest.param(["ü🙂"], ["ä", "ü", "🙂", "x"], "ä", "ü🙂", id="unicode"),
        pytest.param(["", "x"], ["ax"], "a", "x", id="an empty one is dropped"),
        pytest.param(["x", "x"], ["ax"], "a", "x", id="given twice"),
        pytest.param(["x"], ["", "a", "", "x"], "a", "x", id="empty pieces"),
    ],
)
def test_w39(stops: list[str], pieces: list[str], text: str, matched: str | None) -> None:
    assert run(stops, pieces) == (text, matched)


@pytest.mark.parametrize("stops", [[], [""]])
@pytest.mark.parametrize("piece", ["", " ", "\n", "<", "STOP", "🙂"])
def test_w39_no_stops_hold_and_change_no_byte(stops: list[str], piece: str) -> None:
    matcher = StopMatcher(stops)
    assert (matcher.feed(piece), matcher.flush()) == (piece, "")


def test_nothing_comes_after_a_match() -> None:
    matcher = StopMatcher(["."])
    assert [matcher.feed("a.b"), matcher.feed("c"), matcher.flush()] == ["a", "", ""]


def test_a_match_is_known_with_its_last_character() -> None:
    matcher = StopMatcher(["abab", "xyz"])
    matcher.feed("abab")
    assert matcher.matched == "abab"


STOPS = st.lists(st.text("abc", max_size=4), max_size=4)
TEXTS = st.text("abcd", max_size=16)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(bounds)]


@settings(max_examples=3000, database=None)
@given(STOPS, TEXTS, st.lists(st.integers(0, 16), max_size=5))
def test_w40_any_pieces_give_what_the_whole_text_gives(
    stops: list[str], text: str, cuts: list[int]
) -> None:
    assert run(stops, pieces_of(text, cuts)) == by_hand(stops, text)


@settings(max_examples=1000, database=None)
@given(STOPS, TEXTS)
def test_w39_only_what_could_still_become_a_match_is_held(stops: list[str], text: str) -> None:
    matcher, released = StopMatcher(stops), ""
    for end in range(1, len(text) + 1):
        released += matcher.feed(text[end - 1])
        if matcher.matched is not None:
            return
        held = text[len(released) : end]
        starts = range(end)
        longest = max((end - at for at in starts if begins_a_stop(stops, text[at:end])), default=0)
        assert len(held) == longest


def begins_a_stop(stops: list[str], end: str) -> bool:
    return any(len(end) < len(stop) and stop.startswith(end) for stop in stops)


@settings(max_examples=1000, database=None)
@given(STOPS, TEXTS)
def test_a_match_is_not_waited_for_longer_than_needed(stops: list[str], text: str) -> None:
    """Whenever a match is not taken yet, some text that follows would change it."""
    matcher = StopMatcher(stops)
    for end in range(1, len(text) + 1):
        matcher.feed(text[end - 1])
        if matcher.matched is not None:
            break
        start, _ = by_hand(stops, text[:end])
        if len(start) < end:
            tails = [stop[k:] for stop in stops for k in range(len(stop))]
            now = by_hand(stops, text[:end])
            assert any(by_hand(stops, text[:end] + tail) != now for tail in tails)
