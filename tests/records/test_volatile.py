"""Text that changes by itself is told from text that somebody changed."""

from __future__ import annotations

import pytest

from mlxnb.records.volatile import Change, masked, volatile_change


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("date", "2026-11-28", "2026-11-29"),
        ("date", "2026-11-28T09:30:00Z", "2026-11-28T09:30:01Z"),
        ("date", "2026-11-28 09:30:00.123+01:00", "2026-11-28 09:30:00.456+01:00"),
        ("date", "28.11.2026", "29.11.2026"),
        ("date", "11/28/26", "12/01/26"),
        ("date", "28 November 2026", "29 November 2026"),
        ("date", "Saturday, 28 November 2026", "Sunday, 29 November 2026"),
        ("date", "Nov 28, 2026", "Dec 1, 2026"),
        ("date", "November 28th", "November 29th"),
        ("date", "November 2026", "December 2026"),
        ("date", "Saturday", "Sunday"),
        ("time", "09:30", "10:05"),
        ("time", "9:30:15 PM", "9:30:16 PM"),
        ("time", "1795867200", "1795867261"),
        ("time", "1795867200.25", "1795867261.5"),
        ("uuid", "0b8e1d3c-52f1-4c1e-9a7d-2f6f0f3f9a11", "9f8e1d3c-52f1-4c1e-9a7d-2f6f0f3f9a11"),
        ("id", "9f86d081884c7d65", "2c26b46b68ffc68f"),
        ("id", "a94a8fe", "b1d5781"),
        ("id", "req_8Xk2LmQ9", "req_7Yk3LmQ1"),
        ("id", "K3v9QmZx81Lp", "K3v9QmZx82Lp"),
        ("counter", "9", "10"),
        ("counter", "1", "12"),
        ("counter", "1,204", "1,205"),
        ("counter", "0.75", "0.5"),
    ],
)
def test_the_kind_and_both_values_are_found(kind: str, before: str, after: str) -> None:
    texts = (f"Be brief. Now: {value}. Answer in French." for value in (before, after))
    assert volatile_change(*texts) == Change(kind, before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("You are kind.", "You are strict."),
        ("Answer in 2 sentences.", "Answer in 3 words."),
        ("Use Python 2, beta.", "Use Python 2; alpha."),
        ("On 2026-11-28, be kind.", "On 2026-11-28; be kind."),
        ("Be brief.", "Be brief. Today is 2026-11-28."),
        ("Today is Monday.", "Today is sunny."),
        ("You may go.", "You must go."),
        ("deadbeef", "feedface"),
        ("same", "same"),
        ("", "2026-11-28"),
        ("", ""),
    ],
)
def test_what_somebody_changed_is_not_volatile(before: str, after: str) -> None:
    assert volatile_change(before, after) is None


def test_a_date_counts_whatever_changes_after_it() -> None:
    change = volatile_change("On 2026-11-28 be kind.", "On 2026-11-29 be strict and fast.")
    assert change == Change("date", "2026-11-28", "2026-11-29")


def test_a_counter_counts_only_if_nothing_else_changes() -> None:
    assert volatile_change("Turn 3 of 9. Be kind.", "Turn 4 of 9. Be kind.") is not None
    assert volatile_change("Turn 3 of 9. Be kind.", "Turn 4 of 9. Be strict.") is None


def test_a_difference_far_into_a_text_is_found() -> None:
    text = "word " * 5000
    change = volatile_change(f"{text}at 10:00 {text}", f"{text}at 10:01 {text}")
    assert change == Change("time", "10:00", "10:01")


def test_masked_texts_differ_only_in_what_somebody_wrote() -> None:
    assert masked("On 2026-11-28, run 7") == masked("On 2027-01-02, run 81")
    assert masked("On 2026-11-28, run 7") != masked("By 2026-11-28, run 7")
