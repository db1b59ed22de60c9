"""The nearest turn is the one that shares most, found without looking at every token."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from conversation import common, turn
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.records.diagnosis import nearest
from mlxnb.records.nearest import Run, meeting, packed_sequence
from mlxnb.records.turn import TurnRecord


def of_tokens(number: int, prompt: list[int], output: list[int], **options: Any) -> TurnRecord:
    return turn(number, prompt=array("I", prompt), output=array("I", output), spans=[], **options)


def test_the_turn_with_the_longest_common_beginning_is_nearest() -> None:
    record = of_tokens(9, [1, 2, 3, 4, 5, 6], [])
    one = of_tokens(1, [1, 2, 9], [])
    two = of_tokens(2, [1, 2, 3], [4, 5, 7])
    three = of_tokens(3, [1, 2, 3, 9], [])
    assert nearest(record, [one, two, three]) == (two, 5)


def test_nothing_to_compare_with_is_none() -> None:
    assert nearest(of_tokens(9, [1, 2], []), []) is None


def test_sharing_nothing_is_zero_tokens() -> None:
    other = of_tokens(1, [7], [])
    assert nearest(of_tokens(9, [1, 2], []), [other]) == (other, 0)


@pytest.mark.parametrize(
    "options", [{"fingerprint": "else"}, {"adapter": "lora"}, {"reuse_enabled": False}]
)
def test_turns_that_could_not_have_served_are_passed_over(options: dict[str, Any]) -> None:
    record = of_tokens(9, [1, 2, 3], [])
    near, far = of_tokens(1, [1], []), of_tokens(2, [1, 2, 3], [], **options)
    assert nearest(record, [near, far]) == (near, 1)


def test_turns_without_tokens_and_the_turn_itself_are_passed_over() -> None:
    record = of_tokens(9, [1, 2, 3], [])
    assert nearest(record, [of_tokens(1, [], []), record]) is None


def test_of_equals_the_newest_is_nearest() -> None:
    record = of_tokens(9, [1, 2, 3], [])
    others = [of_tokens(number, [1, 2], []) for number in (1, 2)]
    assert nearest(record, others) == (others[1], 2)


def test_of_equals_the_same_session_is_nearer_and_the_same_salt_nearest() -> None:
    record = of_tokens(9, [1, 2, 3], [], session="a", salt="x")
    salt = of_tokens(1, [1, 2], [], salt="x", session="b")
    session = of_tokens(2, [1, 2], [], salt="y", session="a")
    both = of_tokens(0, [1, 2], [], salt="x", session="a")
    assert nearest(record, [salt, session]) == (salt, 2)
    assert nearest(record, [both, salt, session]) == (both, 2)


def test_large_ids_whose_bytes_agree_in_part_are_told_apart() -> None:
    record = of_tokens(9, [1, 0x01020304, 5], [])
    other = of_tokens(1, [1, 0x01020305, 5], [])
    assert nearest(record, [other]) == (other, 1)


few = st.integers(0, 2) | st.integers(0, 2**32 - 1)
tokens = st.lists(few, max_size=150)


@given(tokens, st.lists(st.tuples(st.integers(0, 150), tokens, tokens), max_size=8))
def test_it_is_what_a_loop_finds(prompt: list[int], others: list[Any]) -> None:
    record = of_tokens(99, prompt, [])
    earlier = [
        of_tokens(number, prompt[:cut] + tail, output)
        for number, (cut, tail, output) in enumerate(others)
    ]
    found = nearest(record, earlier)
    lengths = [common(record, other) for other in earlier if other.prompt or other.output]
    assert (found[1] if found else None) == max(lengths, default=None)
    assert found is None or common(record, found[0]) == found[1]


# --- where two sequences meet again --------------------------------------------------------


def met(ours: list[int], theirs: list[int], at: int, skip: int | None = None) -> Run | None:
    return meeting(array("I", ours), array("I", theirs).tobytes(), at, skip)


SAME = list(range(100, 130))


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1, 2, *SAME], [1, 3, *SAME], Run(2, 2, 30)),
        ([1, *SAME], [1, 3, 4, 5, *SAME], Run(1, 4, 30)),
        ([1, 3, 4, 5, *SAME], [1, *SAME], Run(4, 1, 30)),
        ([1, 2, *SAME, 7], [1, 3, *SAME, 8], Run(2, 2, 30)),
        ([1, 2, *SAME[:8]], [1, 3, *SAME[:8]], Run(2, 2, 8)),
        ([1, 2, *SAME[:7]], [1, 3, *SAME[:7]], None),
        ([1, 2], [1, 3], None),
    ],
)
def test_sequences_meet_again_after_a_difference(
    ours: list[int], theirs: list[int], expected: Run | None
) -> None:
    assert met(ours, theirs, 1) == expected


def test_the_longest_run_counts() -> None:
    ours = [1, 2, *range(50, 58), 3, *SAME]
    theirs = [1, 4, *range(50, 58), 5, *SAME]
    assert met(ours, theirs, 1) == Run(11, 11, 30)


def test_a_long_insertion_is_skipped_where_its_end_is_known() -> None:
    ours = [1, *range(1000, 1200), *SAME]
    assert met(ours, [1, 2, *SAME], 1) is None
    assert met(ours, [1, 2, *SAME], 1, skip=201) == Run(201, 2, 30)


def test_bytes_that_agree_across_token_borders_are_no_meeting() -> None:
    ours = [9, *[0x01000000] * 8]
    theirs = [8, *[0x00010000] * 12]
    assert met(ours, theirs, 0) is None


def test_a_sequence_is_prompt_and_output_and_leaves_both_free_to_grow() -> None:
    record = of_tokens(1, [1, 2], [3])
    packed = packed_sequence(record)
    record.output.append(4)
    assert array("I", packed).tolist() == [1, 2, 3]
