"""Clients that send whole conversations: W18, W20, W22, W37."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from scripted import THINKING

from mlxnb.engine.sampling import Sampling
from mlxnb.records.turn import Turn
from mlxnb.sessions.ask import ToolChoice
from mlxnb.sessions.messages import Message, answer_message
from mlxnb.sessions.serving.replay import Replay, digests_of, scope_of
from mlxnb.sessions.serving.track import Track

from .world import KEEPING, World, sequence, user

Talker = Callable[..., str]
THOUGHT = "<think>\nwell\n</think>\n\nAh."
TOOL = '{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}'


def without_thinking(turn: Turn) -> Message:
    return {"role": "assistant", "content": turn.text}


def test_five_stateless_turns_extend_exactly(world: World, talker: Talker) -> None:
    """W18"""
    talker(THOUGHT, "Two of them.", THOUGHT, "Four?", "Five", template=KEEPING)
    answers = world.stateless("a", "b", "c", "d", "e")
    for last, answer in pairwise(answers):
        assert answer.cached_tokens >= len(sequence(last)) - 1
        assert answer.cache == answer.record.cache == "prefix_hit"


def test_tokens_that_no_encoding_would_give_are_replayed(world: World, talker: Talker) -> None:
    """Text does not map back to tokens: letters as generated one by one stay so."""
    letters = [33 + ord(letter) for letter in "Answer"]  # bytes of a byte-level vocabulary
    talker([*letters, 2], "Two.")
    first, second = world.stateless("a", "b")
    assert second.request.prompt[: len(first.request.prompt) + len(letters)] == [
        *first.request.prompt,
        *letters,
    ]


def test_white_space_around_an_answer_may_be_lost_on_the_way(world: World, talker: Talker) -> None:
    talker("Spaces.  ", "Two.")
    first, second = world.stateless(
        "a", "b", sent=lambda turn: {"role": "assistant", "content": turn.text.strip()}
    )
    assert second.cached_tokens >= len(sequence(first)) - 1


def test_calls_come_back_as_they_were_generated(world: World, talker: Talker) -> None:
    """Spacing of a call's JSON is the model's, whatever the template would write."""
    talker('<tool_call>\n{"name": "add", "arguments": {"a":1}}\n</tool_call>', "Done.")
    first = world.ask("a", tools=(TOOL,))
    assert first.turn is not None
    said = answer_message(first.turn)
    result = {
        "role": "tool",
        "tool_call_id": said["tool_calls"][0]["id"],
        "name": "add",
        "content": "3",
    }
    second = world.ask(user("a"), said, result, tools=(TOOL,))
    assert second.cached_tokens >= len(sequence(first)) - 1


@pytest.mark.parametrize("template", ["QWEN", "THINKING"])
def test_where_the_template_drops_thinking_it_wins(
    world: World, talker: Talker, template: str
) -> None:
    """W18: reuse ends where the texts part, and the row says why."""
    options: dict[str, Any] = {"template": THINKING} if template == "THINKING" else {}
    thought = "well\n</think>\n\nAh." if template == "THINKING" else THOUGHT
    talker(thought, "Two.", **options)
    first, second = world.stateless("a", "b")
    assert "well" not in world.engine.core.runtime("talker").tokenizer.decode(second.request.prompt)
    assert 0 < second.cached_tokens <= len(first.request.prompt)
    assert second.record.miss_reason == "template_rewrote"


def test_where_a_client_leaves_thinking_out_reuse_ends_at_that_answer(
    world: World, talker: Talker
) -> None:
    talker(THOUGHT, "Two.", template=KEEPING)
    first, second = world.stateless("a", "b", sent=without_thinking)
    assert second.cached_tokens == len(first.request.prompt)
    assert second.record.miss_reason == "template_rewrote"
    assert second.record.diverged_at == len(first.request.prompt)


def test_later_answers_are_replayed_behind_one_that_was_rewritten(
    world: World, talker: Talker
) -> None:
    talker(THOUGHT, "Two.", "Three.")
    _, second, third = world.stateless("a", "b", "c")
    assert third.cached_tokens >= len(sequence(second)) - 1


def test_an_edited_history_is_rendered_anew(world: World, talker: Talker) -> None:
    talker("One.", "Two.")
    first = world.ask("a")
    second = world.ask(user("a"), {"role": "assistant", "content": "Never."}, user("b"))
    assert second.turn is not None and second.turn.text == "Two."
    assert second.cached_tokens <= len(first.request.prompt)
    assert second.record.miss_reason == "history_edited"


def test_an_answer_after_a_stop_string_ends_at_what_was_seen(world: World, talker: Talker) -> None:
    """W36"""
    talker("Up to here STOP and on.", "Two.")
    first = world.ask("a", sampling=Sampling(stop=("STOP",)))
    assert first.turn is not None and first.turn.text == "Up to here "
    second = world.ask(user("a"), answer_message(first.turn), user("b"))
    text = world.engine.core.runtime("talker").tokenizer.decode(second.request.prompt)
    assert "STOP" not in text and "Up to here " in text
    assert second.cached_tokens > len(first.request.prompt)


def test_text_without_its_tool_markup_is_not_replayed(world: World, talker: Talker) -> None:
    """W37"""
    talker('<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>', "Two.")
    first = world.ask("a", store=True)
    assert first.turn is not None and "add" in first.turn.text
    second = world.ask(user("a"), answer_message(first.turn), user("b"))
    assert second.cached_tokens <= len(first.request.prompt)
    by_id = world.ask("b", previous=first.response_id)
    assert by_id.cache == "cold_replay"


@pytest.mark.parametrize("options", [{"caller": "bob"}, {"caller": "ada", "cache_salt": "s"}])
def test_other_salts_share_nothing(world: World, talker: Talker, options: dict[str, str]) -> None:
    """W22"""
    talker("One.", "Two.")
    first = world.ask("a", caller="ada")
    assert first.turn is not None
    said = answer_message(first.turn)
    other = world.ask(user("a"), said, user("b"), **options)
    same = world.ask(user("a"), said, user("b"), caller="ada")
    assert (other.cache, other.cached_tokens) == ("fresh", 0)
    assert same.cached_tokens >= len(sequence(first)) - 1


def test_a_key_adds_no_history(world: World, talker: Talker) -> None:
    """W20"""
    talker("One.", "Two.")
    first = world.ask("a", key="a-key-of-mine", store=True)
    second = world.ask("b", key="a-key-of-mine", store=True)
    assert len(second.request.prompt) == len(first.request.prompt)
    assert second.turn is not None and second.turn.text == "One."


def test_a_short_key_is_warned_about_once(
    world: World, talker: Talker, caplog: pytest.LogCaptureFixture
) -> None:
    """W20, W44: and never logged."""
    talker("One.")
    with caplog.at_level(logging.WARNING, "mlxnb"):
        for key in ("abc", "abc", "", "xyz", "long-enough"):
            answer = world.ask("a", key=key)
            assert (answer.request.owner is None) == (len(key) < 8)
    warnings = [r.getMessage() for r in caplog.records if "prompt_cache_key" in r.getMessage()]
    assert len(warnings) == 3
    assert not any("abc" in warning for warning in warnings)


def test_a_begun_answer_is_replayed_whole(world: World, talker: Talker) -> None:
    talker("It is 42.", "Right.")
    begun = {"role": "assistant", "content": "It is"}
    first = world.ask("What?", begun, continues_answer=True)
    whole = {"role": "assistant", "content": "It is 42."}
    second = world.ask(user("What?"), whole, user("Sure?"))
    assert first.request.prompt[-1] in first.prompt.begun
    assert second.cached_tokens >= len(sequence(first)) - 1


def test_a_begun_answer_stands_outside_the_thought(world: World, talker: Talker) -> None:
    talker("\n</think>\n\nIt is 42.", template=THINKING)
    begun = {"role": "assistant", "content": "It is"}
    answer = world.ask("What?", begun, continues_answer=True)
    text = world.engine.core.runtime("talker").tokenizer.decode(answer.request.prompt)
    assert text.endswith("<think>\n\n</think>\n\nIt is")
    assert answer.turn is not None
    assert not answer.turn.reasoning and answer.turn.text


def test_hidden_tools_are_not_in_the_prompt(world: World, talker: Talker) -> None:
    talker("One.")
    shown = world.ask("a", tools=(TOOL,))
    hidden = world.ask("a", tools=(TOOL,), tool_choice=ToolChoice("none"))
    bare = world.ask("a")
    assert hidden.request.prompt == bare.request.prompt != shown.request.prompt


# --- the memory itself ------------------------------------------------------------------------


SAID: Message = {"role": "assistant", "content": "yes"}
SCOPE = scope_of("model", "", ())


def track(before: Track | None, size: int, answer: int) -> Track:
    length = size + (before.length if before is not None else 0)
    return Track(before, array("I", range(size)), (), array("I"), answer, b"", False, False, length)


def digests(*messages: Message) -> list[bytes]:
    return digests_of(SCOPE, messages)


def test_memory_is_bounded_and_the_oldest_use_goes_first() -> None:
    memory = Replay(limit=3 * (4 * 1000 + 256))
    for name in "abc":
        memory.add(digests(user(name), SAID)[-1], track(None, 1000, 1))
    assert memory.find(digests(user("a"), SAID)) is not None
    memory.add(digests(user("d"), SAID)[-1], track(None, 1000, 1))
    assert len(memory) == 3 and memory.nbytes <= memory.limit
    found = [memory.find(digests(user(name), SAID)) is not None for name in "abcd"]
    assert found == [True, False, True, True]


def test_a_longer_conversation_goes_before_the_one_that_it_holds() -> None:
    memory = Replay(limit=5000)
    first = track(None, 500, 1)
    longer = (user("a"), SAID, user("b"), SAID)
    memory.add(digests(*longer[:2])[-1], first)
    memory.add(digests(*longer)[-1], track(first, 500, 3))
    memory.add(digests(user("z"), SAID)[-1], track(None, 500, 1))
    assert memory.find(digests(*longer)) is first
    assert memory.nbytes <= memory.limit


def test_the_newest_known_answer_counts_whatever_follows() -> None:
    memory = Replay(limit=10_000)
    first = track(None, 10, 1)
    memory.add(digests(user("a"), SAID)[-1], first)
    unknown: Message = {"role": "assistant", "content": "never said"}
    assert memory.find(digests(user("a"), SAID, user("b"), unknown, user("c"))) is first
    other = digests_of(scope_of("model", "", (TOOL,)), [user("a"), SAID])
    assert memory.find(other) is None
