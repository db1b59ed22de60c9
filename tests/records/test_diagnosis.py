"""Every reason for a miss: a turn that has it, and one close by that has not."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from conversation import WORDS, Message, common, encoded, turn, warm
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.records.diagnosis import REASONS, Diagnosis, diagnose
from mlxnb.records.turn import TurnRecord, Usage

SYSTEM = ("system", "You are a helpful assistant who answers every question in one short line.")
FIRST = ("user", "What is the capital of France and how many people live in it?")
ANSWER = "Paris, where about two million people live."
SECOND = ("user", "And which river runs through the middle of it, from east to west?")
THIRD = ("user", "How long is it?")


def found(record: TurnRecord, *earlier: TurnRecord) -> Diagnosis:
    return diagnose(record, earlier, WORDS.decode)


def reason(record: TurnRecord, *earlier: TurnRecord) -> str | None:
    return found(record, *earlier).reason


def said(*messages: Message, answer: str = ANSWER) -> list[Message]:
    return [*messages, ("assistant", answer)]


ONE = turn(1, SYSTEM, FIRST, answer=ANSWER, session="s")


def second(*messages: Message, number: int = 2, **options: Any) -> TurnRecord:
    """The second turn of the conversation that `ONE` begins, with all that can be reused."""
    record = turn(number, *(messages or (*said(SYSTEM, FIRST), SECOND)), session="s", **options)
    return warm(record, ONE)


# --- nothing missed ------------------------------------------------------------------------


def test_an_extension_that_reused_all_missed_nothing() -> None:
    record = second()
    assert record.usage.cached_tokens == len(ONE.prompt) + len(ONE.output) - 1
    assert found(record, ONE) == Diagnosis(
        None, None, "t1", common_tokens=len(ONE.prompt) + len(ONE.output)
    )


def test_the_same_prompt_again_computes_one_token_and_misses_nothing() -> None:
    record = warm(turn(2, SYSTEM, FIRST), ONE)
    assert record.usage.prefill_tokens == 1
    assert found(record, ONE) == Diagnosis(None, None, "t1", common_tokens=len(ONE.prompt))


def test_a_newest_message_that_differs_misses_nothing_and_shows_where() -> None:
    before = second()
    after = warm(turn(3, *said(SYSTEM, FIRST), THIRD, session="s"), ONE, before)
    diagnosis = found(after, ONE, before)
    assert diagnosis.reason is None
    assert diagnosis.diverged_at == diagnosis.common_tokens == common(after, before)
    assert (diagnosis.nearest_id, diagnosis.role, diagnosis.message) == ("t2", "user", 3)
    assert diagnosis.tokens_lost == 0


def test_more_reused_than_any_kept_turn_shares_is_no_miss() -> None:
    record = turn(2, SYSTEM, ("user", "Hello there"), cached=24)
    record.usage = Usage(len(record.prompt), len(record.prompt) - 3, 1)
    assert found(record, ONE) == Diagnosis(None)


def test_a_failed_turns_prompt_that_is_sent_again_with_all_cached_missed_nothing() -> None:
    failed = turn(1, SYSTEM, FIRST, finish_reason="error")
    assert reason(warm(turn(2, SYSTEM, FIRST), failed), failed) is None


def test_a_difference_in_the_last_token_misses_nothing() -> None:
    one = turn(1, prompt=array("I", [*range(30), 98]), spans=[], session="s")
    record = warm(turn(2, prompt=array("I", [*range(30), 99]), spans=[], session="s"), one)
    assert found(record, one) == Diagnosis(None, 30, "t1", common_tokens=30)


# --- first_turn, new_conversation ----------------------------------------------------------


def test_the_first_turn_is_one() -> None:
    assert found(turn(1, SYSTEM, FIRST)) == Diagnosis("first_turn")


@pytest.mark.parametrize("options", [{"fingerprint": "x"}, {"salt": "x"}, {"adapter": "x"}])
def test_a_first_turn_of_its_model_and_salt_is_one(options: dict[str, str]) -> None:
    assert reason(turn(2, ("user", "Something else"), **options), ONE) == "first_turn"


def test_turns_without_reuse_leave_the_next_one_the_first() -> None:
    cold = turn(1, SYSTEM, FIRST, reuse_enabled=False)
    assert reason(turn(2, SYSTEM, FIRST), cold) == "first_turn"


def test_a_first_turn_that_found_its_prefix_on_disk_missed_nothing() -> None:
    assert reason(turn(1, SYSTEM, FIRST, cached=10)) is None


def test_the_second_turn_is_not_the_first() -> None:
    assert reason(turn(2, ("user", "Something else"), cached=2), ONE) != "first_turn"


def test_another_first_message_is_a_new_conversation() -> None:
    record = warm(turn(2, SYSTEM, SECOND), ONE)
    diagnosis = found(record, ONE)
    assert diagnosis.reason == "new_conversation"
    assert diagnosis.diverged_at == record.usage.cached_tokens
    assert (diagnosis.role, diagnosis.message, diagnosis.tokens_lost) == ("user", 1, 0)


def test_of_a_first_message_the_same_words_after_the_difference_could_have_been_reused() -> None:
    record = warm(turn(2, SYSTEM, (FIRST[0], FIRST[1].replace("France", "Spain"))), ONE)
    diagnosis = found(record, ONE)
    assert diagnosis.reason == "new_conversation"
    assert diagnosis.tokens_lost == len(record.prompt) - record.usage.cached_tokens - 2


def test_a_first_message_that_goes_on_where_another_ended_is_a_new_conversation() -> None:
    longer = (FIRST[0], FIRST[1] + " And in Lyon?")
    assert reason(warm(turn(2, SYSTEM, longer), ONE), ONE) == "new_conversation"
    assert reason(
        warm(turn(2, SYSTEM, FIRST), turn(1, SYSTEM, longer)), turn(1, SYSTEM, longer)
    ) == ("new_conversation")


def test_a_whole_other_conversation_sent_at_once_is_new() -> None:
    record = warm(turn(2, SYSTEM, *said(("user", "Name a fish."), answer="Cod."), THIRD), ONE)
    assert reason(record, ONE) == "new_conversation"


def test_without_a_system_text_it_is_a_new_conversation_too() -> None:
    other = turn(1, FIRST)
    assert reason(warm(turn(2, SECOND), other), other) == "new_conversation"


def test_the_next_turn_is_no_new_conversation() -> None:
    assert reason(second(), ONE) is None


# --- reuse_off, not_rewindable -------------------------------------------------------------


def test_reuse_off_is_the_reason_of_every_such_turn() -> None:
    assert found(turn(1, SYSTEM, FIRST, reuse_enabled=False)) == Diagnosis("reuse_off")
    record = turn(2, *said(SYSTEM, FIRST), SECOND, reuse_enabled=False)
    diagnosis = found(record, ONE)
    assert diagnosis.reason == "reuse_off"
    assert diagnosis.tokens_lost == len(ONE.prompt) + len(ONE.output) - 1


def test_layers_that_cannot_be_rewound_are_the_reason_if_something_was_there() -> None:
    cold = turn(2, *said(SYSTEM, FIRST), SECOND, rewindable=False)
    assert reason(cold, ONE) == "not_rewindable"
    assert found(cold, ONE).tokens_lost == len(ONE.prompt) + len(ONE.output) - 1


def test_layers_that_cannot_be_rewound_are_no_reason_if_all_was_reused() -> None:
    assert reason(second(rewindable=False), ONE) is None
    assert reason(turn(1, SYSTEM, FIRST, rewindable=False)) == "first_turn"


# --- other_salt, other_model ---------------------------------------------------------------


def test_the_same_tokens_under_another_salt_are_out_of_reach() -> None:
    diagnosis = found(turn(2, SYSTEM, FIRST, salt="alice"), ONE)
    assert (diagnosis.reason, diagnosis.nearest_id) == ("other_salt", "t1")
    assert diagnosis.tokens_lost == len(ONE.prompt) - 1


def test_the_same_system_text_under_another_salt_is_out_of_reach() -> None:
    own = turn(2, ("user", "Hi"), salt="alice")
    record = warm(turn(3, SYSTEM, SECOND, salt="alice"), own)
    diagnosis = found(record, ONE, own)
    assert (diagnosis.reason, diagnosis.nearest_id) == ("other_salt", "t1")
    assert diagnosis.tokens_lost == common(record, ONE) - record.usage.cached_tokens


def test_another_salt_is_no_reason_where_the_own_one_had_as_much() -> None:
    salted = turn(2, SYSTEM, FIRST, answer=ANSWER, salt="alice")
    record = turn(3, *said(SYSTEM, FIRST), SECOND, salt="alice")
    assert reason(warm(record, salted), ONE, salted) is None


@pytest.mark.parametrize("options", [{"fingerprint": "other"}, {"adapter": "lora"}])
def test_the_same_tokens_in_another_model_are_out_of_reach(options: dict[str, str]) -> None:
    diagnosis = found(turn(2, SYSTEM, FIRST, **options), ONE)
    assert (diagnosis.reason, diagnosis.nearest_id) == ("other_model", "t1")
    assert diagnosis.tokens_lost == len(ONE.prompt) - 1


def test_a_session_that_changed_its_model_has_the_reason_whatever_its_ids_are() -> None:
    record = turn(2, *said(SYSTEM, FIRST), SECOND, session="s", fingerprint="other")
    record.prompt = array("I", [token + 5000 for token in record.prompt])
    assert reason(record, ONE) == "other_model"


def test_another_model_is_no_reason_where_the_own_one_had_as_much() -> None:
    alien = turn(0, SYSTEM, FIRST, answer=ANSWER, fingerprint="other")
    assert reason(second(), alien, ONE) is None


def test_a_part_of_a_message_under_another_salt_is_missed_by_nobody() -> None:
    own = turn(1, SYSTEM, ("user", "What is the weather?"))
    salted = turn(2, SYSTEM, ("user", "What is the capital of Spain?"), salt="x")
    record = warm(turn(3, SYSTEM, FIRST), own)
    assert common(record, salted) > common(record, own)
    assert reason(record, own, salted) == "new_conversation"


@pytest.mark.parametrize("options", [{"salt": "x"}, {"fingerprint": "x"}])
def test_what_a_template_writes_first_is_missed_by_nobody(options: dict[str, str]) -> None:
    other = turn(1, ("user", "Name a fish."), head="Some words that begin all prompts. ")
    record = turn(2, FIRST, head="Some words that begin all prompts. ", **options)
    assert common(record, other) > 5
    assert reason(record, other) == "first_turn"


def test_without_borders_a_few_shared_tokens_are_missed_by_nobody() -> None:
    for length, expected in ((15, "first_turn"), (16, "other_salt")):
        prompt = array("I", [*range(length), 900])
        other = turn(1, prompt=array("I", [*range(length), 901]), spans=[])
        assert reason(turn(2, prompt=prompt, spans=[], salt="x"), other) == expected


# --- system_changed, system_volatile, tools_changed ----------------------------------------


def test_another_system_text_is_the_reason() -> None:
    record = warm(turn(2, ("system", "You are a pirate."), FIRST), ONE)
    diagnosis = found(record, ONE)
    assert diagnosis.reason == "system_changed"
    assert (diagnosis.role, diagnosis.message, diagnosis.change) == ("system", 0, None)


@pytest.mark.parametrize(
    "text", [SYSTEM[1] + " Be kind.", SYSTEM[1][:40], "Please note. " + SYSTEM[1]]
)
def test_a_system_text_made_longer_or_shorter_is_changed(text: str) -> None:
    record = warm(turn(2, ("system", text), FIRST), ONE)
    assert reason(record, ONE) == "system_changed"
    assert reason(warm(turn(2, SYSTEM, FIRST), turn(1, ("system", text), FIRST)), record) == (
        "system_changed"
    )


def test_a_system_text_put_in_or_left_out_is_changed() -> None:
    bare = turn(1, FIRST)
    assert reason(warm(turn(2, SYSTEM, FIRST), bare), bare) == "system_changed"
    assert reason(warm(turn(2, FIRST), ONE), ONE) == "system_changed"


def test_after_a_changed_word_the_rest_counts_as_lost() -> None:
    changed = ("system", SYSTEM[1].replace("helpful", "patient"))
    record = warm(turn(2, changed, FIRST), ONE)
    diagnosis = found(record, ONE)
    assert diagnosis.tokens_lost == len(record.prompt) - record.usage.cached_tokens - 2
    assert diagnosis.resumes is not None
    assert diagnosis.resumes.start == diagnosis.diverged_at + 1


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("date", "2026-11-28", "2026-11-29"),
        ("time", "10:59", "11:00"),
        ("uuid", "0b8e1d3c-52f1-4c1e-9a7d-2f6f0f3f9a11", "1b8e1d3c-52f1-4c1e-9a7d-2f6f0f3f9a11"),
        ("id", "9f86d081884c7d65", "2c26b46b68ffc68f"),
        ("counter", "41", "42"),
    ],
)
def test_what_changes_by_itself_in_the_system_text_is_the_reason(
    kind: str, before: str, after: str
) -> None:
    texts = [f"You are helpful. This is {value} for you. Be brief." for value in (before, after)]
    other = turn(1, ("system", texts[0]), FIRST)
    record = warm(turn(2, ("system", texts[1]), FIRST), other)
    diagnosis = found(record, other)
    assert diagnosis.reason == "system_volatile"
    assert diagnosis.change is not None
    assert (diagnosis.change.kind, diagnosis.change.before, diagnosis.change.after) == (
        kind,
        before,
        after,
    )
    assert diagnosis.tokens_lost > len(WORDS.encode(FIRST[1]))


def test_a_date_that_the_template_writes_is_volatile_too() -> None:
    other = turn(1, SYSTEM, FIRST, head="Today Date: 28 Nov 2026\n")
    record = warm(turn(2, SYSTEM, FIRST, head="Today Date: 29 Nov 2026\n"), other)
    assert reason(record, other) == "system_volatile"


def test_a_date_in_a_later_system_text_is_volatile_too() -> None:
    note = "It is {} o'clock and the user is still there, so go on."
    before, after = (
        warm(
            turn(2, *said(SYSTEM, FIRST), ("system", note.format(time)), *said(SECOND), THIRD), ONE
        )
        for time in ("10:15", "10:16")
    )
    diagnosis = found(warm(after, before), before)
    assert (diagnosis.reason, diagnosis.message) == ("system_volatile", 3)


def test_a_date_that_stays_is_not_volatile() -> None:
    text = "Today is 2026-11-28. You are {}."
    other = turn(1, ("system", text.format("kind")), FIRST)
    record = warm(turn(2, ("system", text.format("strict")), FIRST), other)
    assert reason(record, other) == "system_changed"


def test_a_date_in_a_users_message_is_not_volatile() -> None:
    other = turn(1, SYSTEM, ("user", "Is 2026-11-28 a holiday?"))
    record = warm(turn(2, SYSTEM, ("user", "Is 2026-11-29 a holiday?")), other)
    assert reason(record, other) == "new_conversation"


TOOLS = '<tools>{"type": "function", "name": "weather", "parameters": {"city": "string"}}</tools>\n'


def test_other_tools_in_the_template_are_the_reason_by_their_digest() -> None:
    other = turn(1, SYSTEM, FIRST, head="Call one of: weather.\n", tools="a")
    record = warm(turn(2, SYSTEM, FIRST, head="Call one of: clock.\n", tools="b"), other)
    assert reason(record, other) == "tools_changed"


def test_tools_put_in_are_the_reason() -> None:
    other = turn(1, SYSTEM, FIRST)
    record = warm(turn(2, SYSTEM, FIRST, head=TOOLS, tools="b"), other)
    assert reason(record, other) == "tools_changed"


def test_other_tools_are_the_reason_by_their_text() -> None:
    other = turn(1, SYSTEM, FIRST, head=TOOLS)
    record = warm(turn(2, SYSTEM, FIRST, head=TOOLS.replace("city", "place")), other)
    assert reason(record, other) == "tools_changed"


def test_other_tools_in_the_system_text_are_the_reason() -> None:
    other = turn(1, (SYSTEM[0], SYSTEM[1] + TOOLS), FIRST, tools="a")
    changed = TOOLS.replace("city", "place")
    record = warm(turn(2, (SYSTEM[0], SYSTEM[1] + changed), FIRST, tools="b"), other)
    assert reason(record, other) == "tools_changed"


def test_the_same_tools_are_not_the_reason() -> None:
    other = turn(1, SYSTEM, FIRST, head=TOOLS, tools="a")
    record = warm(turn(2, ("system", "Be a pirate."), FIRST, head=TOOLS, tools="a"), other)
    assert reason(record, other) == "system_changed"


def test_other_tools_are_not_the_reason_where_the_system_text_differs_before_them() -> None:
    other = turn(1, SYSTEM, FIRST, tools="a")
    record = warm(turn(2, ("system", "Be a pirate."), FIRST, tools="b"), other)
    assert reason(record, other) == "system_changed"


# --- history_edited, template_rewrote ------------------------------------------------------


def test_an_edited_message_is_the_reason_and_the_rest_is_lost() -> None:
    before = second()
    edited = ("user", FIRST[1].replace("France", "Spain"))
    record = turn(3, *said(SYSTEM, edited), SECOND, session="s")
    diagnosis = found(warm(record, ONE, before), ONE, before)
    assert (diagnosis.reason, diagnosis.role, diagnosis.message) == ("history_edited", "user", 1)
    assert diagnosis.tokens_lost == len(record.prompt) - record.usage.cached_tokens - 2


def test_an_edited_first_message_is_told_without_sessions_by_what_follows() -> None:
    before = turn(2, *said(SYSTEM, FIRST), SECOND)
    edited = ("user", FIRST[1].replace("France", "Spain"))
    record = warm(turn(3, *said(SYSTEM, edited), SECOND), before)
    assert reason(record, before) == "history_edited"


def test_an_edited_first_message_with_nothing_equal_after_it_is_told_by_the_session() -> None:
    rest = [*said(("user", "Name a fish."), answer="Cod."), THIRD]
    for session, expected in (("s", "history_edited"), ("t", "new_conversation")):
        assert reason(warm(turn(2, SYSTEM, *rest, session=session), ONE), ONE) == expected


def test_a_message_left_out_is_the_reason() -> None:
    before = turn(2, *said(SYSTEM, FIRST), *said(SECOND, answer="The Seine."), THIRD)
    record = warm(turn(3, *said(SYSTEM, SECOND, answer="The Seine."), THIRD), before)
    assert reason(record, before) == "history_edited"


def test_an_edited_later_message_is_the_reason() -> None:
    before = turn(2, *said(SYSTEM, FIRST), *said(SECOND, answer="The Seine."), THIRD)
    edited = ("user", "And which lake?")
    record = warm(turn(3, *said(SYSTEM, FIRST), *said(edited, answer="The Seine."), THIRD), before)
    diagnosis = found(record, before)
    assert (diagnosis.reason, diagnosis.message) == ("history_edited", 3)


@pytest.mark.parametrize("history", ["exact", "template"])
def test_an_edited_answer_is_the_reason(history: str) -> None:
    edited = said(SYSTEM, FIRST, answer="Lyon, where about two million people live.")
    diagnosis = found(second(*edited, SECOND, history=history), ONE)
    assert (diagnosis.reason, diagnosis.role, diagnosis.message) == (
        "history_edited",
        "assistant",
        2,
    )


def test_another_newest_message_is_no_edit() -> None:
    before = second()
    assert reason(warm(turn(3, *said(SYSTEM, FIRST), THIRD), before), ONE, before) is None


THOUGHT = "<think>\nThe user asks for a capital.\n</think>\n\n"


def thinking(**options: Any) -> tuple[TurnRecord, TurnRecord]:
    """A turn that thought, and the next one, whose template has left the thinking out."""
    one = turn(1, SYSTEM, FIRST, answer=THOUGHT + ANSWER, session="s")
    return one, warm(turn(2, *said(SYSTEM, FIRST), SECOND, session="s", **options), one)


def test_a_template_that_drops_thinking_is_the_reason() -> None:
    one, record = thinking(history="template")
    diagnosis = found(record, one)
    assert diagnosis.reason == "template_rewrote"
    assert diagnosis.diverged_at == len(one.prompt)
    assert (diagnosis.role, diagnosis.message) == ("assistant", 2)
    assert diagnosis.tokens_lost == len(WORDS.encode(ANSWER + "<|end|>"))


def test_the_same_without_a_template_is_an_edit() -> None:
    one, record = thinking(history="exact")
    assert reason(record, one) == "history_edited"


def test_a_template_that_adds_empty_thinking_is_the_reason() -> None:
    rendered = said(SYSTEM, FIRST, answer="<think>\n\n</think>\n\n" + ANSWER)
    assert reason(second(*rendered, SECOND, history="template"), ONE) == "template_rewrote"


def test_a_template_that_trims_an_answer_is_the_reason() -> None:
    one = turn(1, SYSTEM, FIRST, answer=ANSWER + "\n\n")
    record = warm(turn(2, *said(SYSTEM, FIRST), SECOND, history="template"), one)
    assert reason(record, one) == "template_rewrote"


def test_a_template_that_writes_calls_its_own_way_is_the_reason() -> None:
    one = turn(1, SYSTEM, FIRST, answer='call{"city":"Paris"}', finish_reason="tool_calls")
    rendered = said(SYSTEM, FIRST, answer='call {"name": "weather"}')
    record = warm(turn(2, *rendered, ("tool", "12 degrees"), history="template"), one)
    assert reason(record, one) == "template_rewrote"


def test_a_template_that_ends_old_answers_otherwise_is_the_reason() -> None:
    one = turn(2, *said(SYSTEM, FIRST), *said(SECOND, answer="The Seine."), THIRD)
    record = warm(turn(3, *said(SYSTEM, FIRST), *said(SECOND, answer="The Seine."), THIRD), one)
    span = next(s for s in record.spans if s.role == "template" and s.message == 3)
    record.prompt[span.start + 1] = WORDS.encode("\t")[0]
    warm(record, one)
    assert reason(record, one) == "history_edited"
    record.history = "template"
    assert reason(record, one) == "template_rewrote"


def test_a_truncated_answer_is_an_edit_in_a_template_too() -> None:
    shorter = said(SYSTEM, FIRST, answer="Paris")
    assert reason(second(*shorter, SECOND, history="template"), ONE) == "history_edited"


def test_a_template_that_changes_nothing_is_no_reason() -> None:
    assert reason(second(history="template"), ONE) is None


def test_what_a_stop_string_cut_off_was_never_part_of_the_history() -> None:
    one = turn(1, SYSTEM, FIRST, answer=ANSWER + " STOP and", finish_reason="stop_sequence")
    record = warm(turn(2, *said(SYSTEM, FIRST), SECOND, session="s"), one)
    diagnosis = found(record, one)
    assert diagnosis.reason is None
    assert diagnosis.diverged_at == len(one.prompt) + len(WORDS.encode(ANSWER))


def test_an_interrupted_answer_that_was_left_out_misses_nothing() -> None:
    one = turn(1, SYSTEM, FIRST, answer="Paris, wh", finish_reason="cancelled")
    record = warm(turn(2, SYSTEM, FIRST, THIRD, session="s"), one)
    assert reason(record, one) is None


# --- evicted, unfinished -------------------------------------------------------------------


def test_tokens_that_were_there_and_are_not_are_evicted() -> None:
    record = second()
    record.usage = Usage(len(record.prompt), 4, 1)
    diagnosis = found(record, ONE)
    assert (diagnosis.reason, diagnosis.diverged_at) == ("evicted", None)
    assert diagnosis.tokens_lost == len(ONE.prompt) + len(ONE.output) - 1 - 4


def test_an_evicted_system_text_of_another_conversation_shows_where_it_diverged() -> None:
    record = turn(2, SYSTEM, SECOND)
    diagnosis = found(record, ONE)
    assert diagnosis.reason == "evicted"
    assert diagnosis.diverged_at == diagnosis.tokens_lost == common(record, ONE)


def test_one_token_less_than_common_is_not_evicted() -> None:
    record = warm(turn(2, SYSTEM, SECOND), ONE)
    usage = record.usage
    record.usage = Usage(usage.prompt_tokens, usage.cached_tokens - 1, 1)
    assert reason(record, ONE) == "new_conversation"
    record.usage = Usage(usage.prompt_tokens, usage.cached_tokens - 2, 1)
    assert reason(record, ONE) == "evicted"


@pytest.mark.parametrize("end", ["cancelled", "error", None])
def test_tokens_of_a_turn_that_did_not_end_well_are_not_called_evicted(end: Any) -> None:
    one = turn(1, SYSTEM, FIRST, finish_reason=end)
    assert reason(turn(2, SYSTEM, FIRST), one) == "unfinished"


@pytest.mark.parametrize("end", ["stop", "length", "tool_calls", "stop_sequence"])
def test_tokens_of_a_turn_that_ended_are_evicted(end: Any) -> None:
    one = turn(1, SYSTEM, FIRST, finish_reason=end)
    assert reason(turn(2, SYSTEM, FIRST), one) == "evicted"


def test_the_greater_loss_is_the_reason() -> None:
    own = turn(1, SYSTEM, ("user", "Hi"))
    salted = turn(2, SYSTEM, FIRST, salt="x")
    long = turn(2, *said(SYSTEM, FIRST), *said(SECOND), THIRD, salt="x")
    assert reason(turn(3, SYSTEM, ("user", "Hi")), own, salted) == "evicted"
    assert reason(turn(3, *said(SYSTEM, FIRST), SECOND), ONE, long) == "evicted"
    cold = turn(3, *said(SYSTEM, FIRST), *said(SECOND), THIRD)
    assert reason(cold, own, long) == "other_salt"


# --- without borders, without tokens -------------------------------------------------------


def bare(number: int, messages: list[Message], **options: Any) -> TurnRecord:
    return turn(number, *messages, **(options | {"spans": []}))


def test_without_borders_sessions_tell_an_edit_from_a_new_conversation() -> None:
    one = bare(1, [SYSTEM, FIRST], answer=THOUGHT + ANSWER, session="s")
    rest = [*said(SYSTEM, FIRST), SECOND]
    new, edited, rewritten = (
        warm(bare(2, rest, session=session, history=history), one)
        for session, history in (("t", "exact"), ("s", "exact"), ("s", "template"))
    )
    assert reason(new, one) == "new_conversation"
    assert reason(edited, one) == "history_edited"
    assert reason(rewritten, one) == "template_rewrote"
    assert found(new, one).role is None and found(new, one).message is None


def test_a_turn_whose_tokens_were_dropped_keeps_what_was_found() -> None:
    empty: Any = {"prompt": array("I"), "output": array("I"), "spans": []}
    record = turn(2, miss_reason="evicted", diverged_at=7, **empty)
    assert found(record, ONE) == Diagnosis("evicted", 7)


def test_earlier_turns_whose_tokens_were_dropped_are_passed_over() -> None:
    empty: Any = {"prompt": array("I"), "output": array("I"), "spans": []}
    assert reason(turn(2, SYSTEM, FIRST), turn(1, **empty)) == "first_turn"


def test_every_reason_has_one_sentence() -> None:
    assert set(REASONS) == {
        "first_turn",
        "new_conversation",
        "reuse_off",
        "not_rewindable",
        "other_salt",
        "other_model",
        "system_changed",
        "system_volatile",
        "tools_changed",
        "history_edited",
        "template_rewrote",
        "evicted",
        "unfinished",
    }
    assert all(text.endswith(".") and text.count(". ") == 0 for text in REASONS.values())


# --- whatever is sent ----------------------------------------------------------------------

text = st.lists(st.sampled_from(["a", "b", "c", "d", "1", "2", ".", "2026-11-28"]), max_size=6).map(
    " ".join
)
roles = st.sampled_from(["system", "user", "assistant", "tool"])
conversations = st.lists(st.tuples(roles, text), min_size=1, max_size=5)
ends = st.sampled_from(["stop", "length", "stop_sequence", "cancelled", "tool_calls", None])


@st.composite
def turns(draw: st.DrawFn, number: int) -> TurnRecord:
    return turn(
        number,
        *draw(conversations),
        answer=draw(text),
        session=draw(st.sampled_from([None, "s", "t"])),
        salt=draw(st.sampled_from(["", "", "x"])),
        fingerprint=draw(st.sampled_from(["weights", "weights", "x"])),
        history=draw(st.sampled_from(["exact", "template"])),
        tools=draw(st.sampled_from(["", "a", "b"])),
        finish_reason=draw(ends),
        reuse_enabled=draw(st.sampled_from([True, True, True, False])),
        rewindable=draw(st.sampled_from([True, True, True, False])),
    )


@given(st.data())
def test_any_turn_gets_a_known_reason_and_consistent_numbers(data: st.DataObject) -> None:
    earlier = [data.draw(turns(number)) for number in range(data.draw(st.integers(0, 4)))]
    record = data.draw(turns(9))
    size = len(record.prompt)
    record.usage = Usage(size, data.draw(st.integers(0, size - 1)), 1)
    diagnosis = found(record, *earlier)
    assert diagnosis.reason is None or diagnosis.reason in REASONS
    assert 0 <= diagnosis.tokens_lost <= record.usage.prefill_tokens
    assert diagnosis.diverged_at in (None, diagnosis.common_tokens)
    if diagnosis.nearest_id is not None:
        other = earlier[int(diagnosis.nearest_id[1:])]
        assert diagnosis.common_tokens == common(record, other)


def test_the_tests_own_prompts_begin_with_the_turn_before() -> None:
    prompt, _ = encoded([*said(SYSTEM, FIRST), SECOND])
    assert prompt.tolist()[: len(ONE.prompt) + len(ONE.output)] == [*ONE.prompt, *ONE.output]
