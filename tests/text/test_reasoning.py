"""Reasoning and text, told apart by tags that never come out (W30)."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxnb.text.reasoning import ReasoningSplitter, Run

TAGS = ("<think>", "</think>")


def split(pieces: list[str], tags: tuple[str, str] | None = TAGS, **kwargs: bool) -> list[Run]:
    """The runs of these pieces, neighbours of one kind joined."""
    splitter = ReasoningSplitter(tags, **kwargs)
    runs = [run for piece in pieces for run in splitter.feed(piece)]
    runs += splitter.feed("", last=True)
    return [(kind, "".join(text for _, text in same)) for kind, same in groupby(runs, kind_of)]


def kind_of(run: Run) -> str:
    return run[0]


def shown(runs: list[Run]) -> tuple[str, str]:
    """Reasoning and text."""
    reasoning = "".join(text for kind, text in runs if kind == "reasoning")
    return reasoning, "".join(text for kind, text in runs if kind == "text")


@pytest.mark.parametrize(
    ("raw", "inside", "reasoning", "text"),
    [
        pytest.param("<think>why</think>so", False, "why", "so", id="a block"),
        pytest.param("why</think>so", True, "why", "so", id="opened in the prompt"),
        pytest.param("<think>why</think>so", True, "why", "so", id="opened twice"),
        pytest.param("a<think>b</think>c<think>d</think>e", False, "bd", "ace", id="two blocks"),
        pytest.param("why</think>so", False, "", "whyso", id="an end tag alone"),
        pytest.param("<think>a<think>b</think>c", False, "ab", "c", id="nested start"),
        pytest.param("<<think>x</think>", False, "x", "<", id="false start before a tag"),
        pytest.param("<think><</think>", False, "<", "", id="false start before the end tag"),
        pytest.param("<thin>k <think", False, "", "<thin>k <think", id="false tags"),
        pytest.param("<think>x</thin", False, "x</thin", "", id="cut in the end tag"),
        pytest.param("<think>", False, "", "", id="a tag alone"),
        pytest.param("", True, "", "", id="nothing"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_w30_tags_split_and_never_come_out(
    raw: str, inside: bool, reasoning: str, text: str, size: int
) -> None:
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert shown(split(pieces, starts_inside=inside)) == (reasoning, text)


def test_a_model_that_does_not_reason_has_text_alone() -> None:
    assert split(["<think>x</think>"], None) == [("text", "<think>x</think>")]


def test_a_family_without_start_tag_has_its_end_tag_sought() -> None:
    assert split(["why</think>so"], ("", "</think>"), starts_inside=True) == [
        ("reasoning", "why"),
        ("tag", "</think>"),
        ("text", "so"),
    ]


def test_a_partial_tag_is_held_and_a_false_one_let_go_at_once() -> None:
    splitter = ReasoningSplitter(TAGS)
    assert splitter.feed("a<thi") == [("text", "a")]
    assert splitter.feed("s") == [("text", "<this")]


def test_inside_is_known_with_the_tags_last_character() -> None:
    splitter = ReasoningSplitter(TAGS)
    splitter.feed("<think>")
    assert splitter.inside
    splitter.feed("</think>")
    assert not splitter.inside


def test_a_watched_tag_is_the_last_run_and_the_rest_is_left() -> None:
    splitter = ReasoningSplitter(TAGS, watch=["<call>"])
    assert splitter.feed("a<call>b<think>") == [("text", "a"), ("watched", "<call>")]
    assert splitter.rest == "b<think>"


def test_a_tag_watched_outside_is_reasoning_inside() -> None:
    splitter = ReasoningSplitter(TAGS, starts_inside=True, watch=["<call>"])
    assert splitter.feed("a<call>b") == [("reasoning", "a<call>b")]


def test_a_tag_watched_inside_stops_there() -> None:
    splitter = ReasoningSplitter(TAGS, starts_inside=True, watch_inside=["<call>"])
    assert splitter.feed("a<call>b")[-1] == ("watched", "<call>")
    splitter.resume(inside=False)
    assert splitter.feed("b") == [("text", "b")]


FRAGMENTS = st.sampled_from(
    ["<think>", "</think>", "<", "</", "<th", "ink>", "/think>", ">", "think", "a", "\n", "é", ""]
)


@settings(max_examples=1500, database=None)
@given(st.lists(FRAGMENTS, max_size=10), st.booleans(), st.integers(1, 5))
def test_w40_the_runs_are_the_stream_and_do_not_depend_on_its_pieces(
    fragments: list[str], inside: bool, size: int
) -> None:
    raw = "".join(fragments)
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    runs = split(fragments, starts_inside=inside)
    assert "".join(text for _, text in runs) == raw
    assert runs == split(pieces, starts_inside=inside) == split([raw], starts_inside=inside)
    assert not any(tag in text for kind, text in runs for tag in TAGS if kind != "tag")
