"""Where a prompt leaves another turn: the message it falls in, and where both meet again."""

from __future__ import annotations

from array import array

import pytest
from conversation import turn

from mlxnb.records.divergence import Divergence, divergence
from mlxnb.records.turn import Span, TurnRecord


def of_tokens(number: int, prompt: list[int], spans: list[Span]) -> TurnRecord:
    return turn(number, prompt=array("I", prompt), output=array("I", [7]), spans=spans)


def at(record: TurnRecord, earlier: TurnRecord, position: int) -> Divergence:
    found = divergence(record, earlier, position)
    assert found is not None
    return found


@pytest.mark.parametrize("prompt", [[1, 2], [1, 2, 3], [1, 2, 3, 7], [1, 2, 3, 7, 8]])
def test_where_one_begins_with_the_other_there_is_no_difference(prompt: list[int]) -> None:
    earlier = of_tokens(1, [1, 2, 3], [])
    assert divergence(of_tokens(2, prompt, []), earlier, min(len(prompt), 4)) is None


def test_the_place_is_the_earlier_message_of_both() -> None:
    here, there = Span(0, 2, "user", 3), Span(0, 2, "tool", 2)
    found = at(of_tokens(2, [1, 2], [here]), of_tokens(1, [1, 3], [there]), 1)
    assert (found.here, found.there, found.place) == (here, there, there)


def test_of_one_message_the_place_is_rather_its_text_than_the_template() -> None:
    here, there = Span(0, 2, "template", 2), Span(0, 2, "user", 2)
    assert at(of_tokens(2, [1, 2], [here]), of_tokens(1, [1, 3], [there]), 1).place == there


def test_an_answer_is_the_message_after_the_prompts_last() -> None:
    earlier = of_tokens(1, [1, 2], [Span(0, 2, "user", 4)])
    found = at(of_tokens(2, [1, 2, 3], [Span(0, 3, "user", 4)]), earlier, 2)
    assert found.there == Span(2, 3, "assistant", 5) and found.in_output


def test_without_borders_there_is_no_place() -> None:
    assert at(of_tokens(2, [1, 2], []), of_tokens(1, [1, 3], []), 1).place is None


def test_what_the_template_repeats_after_every_message_is_no_meeting() -> None:
    suffix = list(range(50, 62))
    spans = [Span(0, 2, "user", 0), Span(2, 14, "template", 1)]
    record, earlier = (of_tokens(n, [1, n + 10, *suffix], spans) for n in (2, 1))
    assert at(record, earlier, 1).resumes is None
    spans[1:] = [Span(2, 13, "template", 1), Span(13, 14, "user", 1)]
    assert at(record, earlier, 1).resumes is not None
