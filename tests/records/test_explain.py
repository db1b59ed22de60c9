"""An explanation names the cause, shows both sides, and accounts for every prompt token."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import pytest
from conversation import WORDS, turn, warm
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.records.explain import Explanation, explain
from mlxnb.records.turn import TurnRecord, Usage

COLUMNS = {
    "segment": "Int64",
    "start": "Int64",
    "end": "Int64",
    "tokens": "Int64",
    "role": "string",
    "message": "Int64",
    "source": "string",
    "note": "string",
    "text": "string",
}
SYSTEM = "You are a helpful assistant. Today is {}. Answer every question in one short line."
USER = ("user", "What is the capital of France and how many people live in it?")
EARLIER = turn(1, ("system", SYSTEM.format("2026-11-28")), USER)
LATER = warm(turn(2, ("system", SYSTEM.format("2026-11-29")), USER), EARLIER)


def explained(record: TurnRecord, *earlier: TurnRecord, show_text: bool = True) -> Explanation:
    return explain(record, earlier, WORDS.decode, show_text)


def dropped(**options: Any) -> TurnRecord:
    empty: Any = {"prompt": array("I"), "output": array("I"), "spans": []}
    return turn(2, **(empty | options))


# --- what is said --------------------------------------------------------------------------


def test_a_changing_date_is_named_with_both_values() -> None:
    report = explained(LATER, EARLIER)
    assert report.reason == "system_volatile"
    assert report.likely_cause.endswith("It is a date: '2026-11-28' became '2026-11-29'.")
    assert (report.nearest_id, report.role, report.message) == ("t1", "system", 0)


def test_the_first_difference_has_ids_and_texts_of_both_sides() -> None:
    difference = explained(LATER, EARLIER).first_difference
    at = LATER.usage.cached_tokens
    assert difference is not None and difference.position == at
    assert difference.context.endswith("Today is 2026-11-") and len(difference.context_tokens) == 20
    assert difference.text.startswith("29. Answer") and len(difference.tokens) == 20
    assert difference.earlier_text.startswith("28. Answer")
    assert difference.tokens == tuple(LATER.prompt[at : at + 20])
    assert difference.earlier_tokens == tuple(EARLIER.prompt[at : at + 20])
    assert difference.context_tokens == tuple(EARLIER.prompt[at - 20 : at])


def test_a_difference_in_an_answer_shows_what_was_generated() -> None:
    one = turn(1, USER, answer="Paris and more.")
    record = warm(turn(2, USER, ("assistant", "Lyon."), ("user", "Why?")), one)
    difference = explained(record, one).first_difference
    assert difference is not None
    assert (difference.text[:5], difference.earlier_text[:5]) == ("Lyon.", "Paris")


def test_an_extension_has_no_difference() -> None:
    record = warm(turn(2, USER, ("assistant", "Paris."), ("user", "Why?")), turn(1, USER))
    one = turn(1, USER, answer="Paris.")
    report = explained(warm(record, one), one)
    assert report.reason is None and report.first_difference is None
    assert report.diverged_at is None and report.tokens_lost == 0
    assert report.likely_cause == "Nothing that could have been reused was missed."


def test_tokens_lost_are_those_that_are_the_same_again() -> None:
    report = explained(LATER, EARLIER)
    assert report.tokens_lost == len(LATER.prompt) - report.diverged_at - 2


def test_the_first_turn_is_explained_without_another() -> None:
    report = explained(turn(1, USER))
    assert report.reason == "first_turn" and report.nearest_id is None
    assert report.frame["source"].unique().tolist() == ["computed"]


def test_an_id_is_named_with_its_article() -> None:
    one = turn(1, ("system", "Request req_8Xk2LmQ9 of many."), USER)
    record = warm(turn(2, ("system", "Request req_7Yk3LmQ1 of many."), USER), one)
    assert "It is an id: " in explained(record, one).likely_cause


# --- the frame -----------------------------------------------------------------------------


def layout(report: Explanation) -> dict[str, str]:
    return {name: str(dtype) for name, dtype in report.frame.dtypes.items()}


@pytest.mark.parametrize(
    "report",
    [
        explained(LATER, EARLIER),
        explained(LATER, EARLIER, show_text=False),
        explained(turn(1, USER)),
        explained(dropped(usage=Usage(100, 40, 2))),
        explained(dropped(usage=Usage())),
    ],
)
def test_the_frame_has_its_columns_in_order(report: Explanation) -> None:
    assert list(layout(report).items()) == list(COLUMNS.items())


def test_segments_say_what_became_of_each_message() -> None:
    frame = explained(LATER, EARLIER).frame
    rows = list(zip(frame["role"], frame["source"], frame["text"], strict=True))
    assert rows[:2] == [
        ("template", "reused", "<|system|>\n"),
        ("system", "reused", "You are a helpful assistant. Today is 2026-11-"),
    ]
    assert rows[2] == ("system", "computed", "29")
    assert rows[3] == (
        "system",
        "displaced",
        ". Answer every question in one short line.",
    )
    assert ("user", "displaced", USER[1]) in rows


def test_notes_point_to_the_other_turn() -> None:
    frame = explained(LATER, EARLIER).frame
    at = LATER.usage.cached_tokens
    notes = dict(zip(frame["start"], frame["note"], strict=True))
    assert notes[at] == "differs from t1 here"
    assert notes[at + 1] == f"t1 has the same tokens at {at + 1}"


def test_evicted_tokens_are_recomputed_and_the_last_is_not() -> None:
    one = turn(1, USER)
    frame = explained(turn(2, USER, cached=4), one).frame
    assert frame.groupby("source")["tokens"].sum().to_dict() == {
        "reused": 4,
        "recomputed": len(one.prompt) - 5,
        "computed": 1,
    }
    assert frame["note"].iloc[-1] == "the last token of a prompt is always computed"


def test_the_last_token_of_an_answer_is_no_loss() -> None:
    one = turn(1, USER, answer="Paris.")
    record = warm(turn(2, USER, ("assistant", "Paris."), ("user", "Why?")), one)
    frame = explained(record, one).frame
    assert set(frame["source"]) == {"reused", "computed"}
    assert frame["note"].str.contains("last token of an answer").any()


# --- without texts, without tokens ---------------------------------------------------------


def test_without_texts_no_word_and_no_id_of_a_prompt_is_shown() -> None:
    report = explained(LATER, EARLIER, show_text=False)
    assert report.first_difference is None
    assert report.likely_cause.endswith("It is a date.")
    assert report.frame["text"].isna().all()
    shown = repr(report) + report._repr_html_() + report.frame.to_string()
    assert not re.search("capital|France|helpful|2026|Today", shown)
    assert "system_volatile" in shown and "system" in set(report.frame["role"].dropna())


def test_dropped_tokens_leave_counts_and_the_reason_of_the_time() -> None:
    record = dropped(miss_reason="evicted", diverged_at=40, usage=Usage(100, 40, 2))
    report = explained(record, EARLIER)
    assert (report.reason, report.diverged_at, report.prompt_tokens) == ("evicted", 40, 100)
    assert report.likely_cause.endswith("no longer kept.")
    frame = report.frame
    assert frame[["start", "end", "source"]].to_numpy().tolist() == [
        [0, 40, "reused"],
        [40, 100, "computed"],
    ]
    assert set(frame["note"]) == {"the ledger has dropped the tokens"}
    assert "t2" in repr(report) and "<table" in report._repr_html_()


def test_a_reason_found_when_the_turn_ended_outlives_the_turn_that_told_it() -> None:
    record = turn(3, USER, miss_reason="evicted", diverged_at=None)
    report = explained(record)
    assert report.reason == "evicted" and report.likely_cause.endswith("no longer kept.")


def test_a_turn_without_any_tokens_is_explained() -> None:
    report = explained(dropped(usage=Usage()))
    assert report.frame.empty and report.prompt_tokens == 0
    assert report._repr_html_().startswith("<div")


# --- plain text and HTML -------------------------------------------------------------------


def test_the_repr_is_plain_and_the_same_for_the_same_turns() -> None:
    report = explained(LATER, EARLIER)
    assert repr(report) == repr(explained(LATER, EARLIER))
    assert "turn: t2 (demo)" in repr(report)
    assert "cause: The system text holds" in repr(report)
    assert "t1 had: '28. Answer" in repr(report)
    assert 5 <= len(repr(report).splitlines()) <= 10


def test_the_repr_shows_control_characters_escaped() -> None:
    one = turn(1, ("user", "Hi \x1b[2J\u202e there"))
    record = warm(turn(2, ("user", "Hi \x1b[3J\u202e there")), one)
    assert "\x1b" not in repr(explained(record, one))
    assert "\u202e" not in repr(explained(record, one))


class Tags(HTMLParser):
    """The tags of a document; every one must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes.update(name for name, _ in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


HOSTILE = "</td><script>alert(1)</script><img src=\"http://evil/x\" onerror='a()'>&lt;"


def hostile() -> Explanation:
    options = {"model": HOSTILE, "session": HOSTILE}
    rest = (USER, ("assistant", "Yes."), (HOSTILE, "No."))
    one = turn(1, ("system", HOSTILE + " 2026-11-28 " + HOSTILE), *rest, **options)
    record = turn(2, ("system", HOSTILE + " 2026-11-29 " + HOSTILE), *rest, **options)
    return explained(warm(record, one), one)


@pytest.mark.parametrize("report", [hostile(), explained(LATER, EARLIER), explained(EARLIER)])
def test_html_has_tables_only_whatever_the_prompt_holds(report: Explanation) -> None:
    tags = Tags(report._repr_html_())
    assert set(tags.names) <= {"div", "table", "tr", "th", "td", "span", "details", "summary"}
    assert tags.attributes <= {"style", "title"}
    assert tags.open == []


def test_html_shows_what_it_escapes() -> None:
    html = hostile()._repr_html_()
    assert "<script" not in html and "<img" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "&amp;lt;" in html


def test_html_loads_nothing_and_sets_no_page_colours() -> None:
    html = explained(LATER, EARLIER)._repr_html_()
    assert not re.search(r"https?:|url\(|@import|<style|<link", html)
    assert not re.search(r"(?<!-)color:(?!inherit)|background:(?!rgba)", html)


def test_long_explanations_are_cut_in_html_and_whole_in_the_frame() -> None:
    messages = [("user" if n % 2 == 0 else "assistant", f"Number {n}") for n in range(301)]
    report = explained(turn(1, *messages))
    assert len(report.frame) == 603
    assert "… 403 more in .frame" in report._repr_html_()


# --- every token ---------------------------------------------------------------------------

text = st.lists(st.sampled_from(["a", "b", "c", "<b>", "2026-11-28", "9"]), max_size=8).map(
    " ".join
)
roles = st.sampled_from(["system", "user", "assistant", "tool"])
conversations = st.lists(st.tuples(roles, text), min_size=1, max_size=5)


@given(conversations, conversations, st.data(), st.booleans())
def test_every_prompt_token_is_in_one_segment(
    before: Any, after: Any, data: st.DataObject, show_text: bool
) -> None:
    one, record = turn(1, *before), turn(2, *after)
    size = len(record.prompt)
    record.usage = Usage(size, data.draw(st.integers(0, size - 1)), 1)
    report = explained(record, one, show_text=show_text)
    frame = report.frame
    assert frame["start"].tolist() == [0, *frame["end"].tolist()[:-1]]
    assert frame["end"].iloc[-1] == size and (frame["tokens"] > 0).all()
    assert frame.loc[frame["source"] == "reused", "tokens"].sum() == record.usage.cached_tokens
    assert frame["tokens"].sum() == record.usage.cached_tokens + record.usage.prefill_tokens
    assert Tags(report._repr_html_()).open == []
    if show_text:
        assert "".join(frame["text"]) == WORDS.decode(record.prompt)
