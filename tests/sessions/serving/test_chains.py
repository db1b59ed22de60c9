"""Conversations continued by the ids of their responses: W10, W19, W21, W24, W65."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from mlxnb.errors import ChainTooLong, InvalidOption, ModelChanged, UnknownResponse
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving import chain as chains

from .world import KEEPING, World, sequence, user

Talker = Callable[..., str]
THOUGHT = "<think>\nwell\n</think>\n\nAh."


def test_five_turns_by_id_extend_exactly(world: World, talker: Talker) -> None:
    talker("One.", "Two of them.", "Three!", "Four?", "Five")
    answers = world.stored_chain("a", "b", "c", "d", "e")
    for last, answer in pairwise(answers):
        assert answer.cached_tokens >= len(sequence(last)) - 1
        assert answer.record.usage.cached_tokens == answer.cached_tokens
        assert (answer.cache, answer.record.cache) == ("hit", "hit")


def test_a_restarted_service_replays_from_the_store_and_answers_alike(
    world: World, talker: Talker
) -> None:
    talker(THOUGHT, "Two.", THOUGHT, "Four.", "Five.", template=KEEPING)
    warm = world.stored_chain("a", "b", "c", "d")
    last = world.ask("e", previous=warm[-1].response_id, store=True)
    world.restart()
    again = world.ask("e", previous=warm[-1].response_id, store=True)
    assert again.cache == again.record.cache == "cold_replay"
    assert again.request.prompt == last.request.prompt
    assert again.turn is not None and last.turn is not None
    assert again.turn.tokens == last.turn.tokens


def test_what_stands_cold_is_computed_once_and_then_hit(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    talker("One.", "Two.", "Three.", "Four.")
    answers = world.stored_chain("a", "b")
    engine.unload("talker")
    engine.load_source(world.sources[0], progress=False)
    world.restart()
    cold = world.ask("c", previous=answers[-1].response_id, store=True)
    assert (cold.cache, cold.cached_tokens) == ("cold_replay", 0)
    after = world.ask("d", previous=cold.response_id, store=True)
    assert after.cache == "hit"


def test_a_live_session_without_its_kv_is_a_cold_replay(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    talker("One.", "Two.")
    (first,) = world.stored_chain("a")
    engine.unload("talker")
    engine.load_source(world.sources[0], progress=False)
    second = world.ask("b", previous=first.response_id)
    assert (second.cache, second.cached_tokens) == ("cold_replay", 0)


def test_two_continuations_of_one_response_are_both_right(world: World, talker: Talker) -> None:
    talker("One.", "Two.")
    (first,) = world.stored_chain("a")
    one = world.ask("b", previous=first.response_id, store=True)
    other = world.ask("c", previous=first.response_id, store=True)
    assert one.turn is not None and other.turn is not None
    assert one.turn.text == other.turn.text == "Two."
    assert other.cached_tokens >= len(first.request.prompt)


def test_instructions_are_inherited_and_replaced(world: World, talker: Talker) -> None:
    """W10, W19: under other instructions it is no hit."""
    talker("One.", "Two.", "Three.")
    first = world.ask("a", system="Be brief.", store=True)
    same = world.ask("b", previous=first.response_id, store=True)
    assert same.conversation.system == "Be brief."
    assert same.cache == "hit"
    given = world.ask("b", system="Be brief.", previous=first.response_id)
    assert given.cache == "hit"
    other = world.ask("c", system="Be long.", previous=same.response_id, store=True)
    assert other.cache == "cold_replay"
    assert world.service.chain(other.response_id, "").system == "Be long."


@pytest.mark.parametrize("warm", [True, False])
def test_a_chain_is_what_its_responses_said(world: World, talker: Talker, warm: bool) -> None:
    talker("One.", THOUGHT)
    last = world.stored_chain("a", "b", system="Be.")[-1]
    if not warm:
        world.restart()
    chain = world.service.chain(last.response_id, "")
    assert [m["content"] for m in chain.messages] == ["a", "One.", "b", "Ah."]
    assert chain.messages[-1]["reasoning_content"].strip() == "well"
    assert (chain.system, chain.model, chain.pending) == ("Be.", "talker", {})
    assert [item["content"] for item in chain.outputs] == ["Ah."]


@pytest.mark.parametrize("warm", [True, False])
def test_outstanding_calls_are_told(world: World, talker: Talker, warm: bool) -> None:
    """W12"""
    tool = '{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}'
    talker('<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>', "Done.")
    answer = world.ask("a", tools=(tool,), store=True)
    assert answer.turn is not None
    (call,) = answer.turn.tool_calls
    if not warm:
        world.restart()
    chain = world.service.chain(answer.response_id, "")
    assert chain.pending == {call.id: "add"}
    result = {"role": "tool", "tool_call_id": call.id, "name": "add", "content": "3"}
    after = world.ask(result, tools=(tool,), previous=answer.response_id, store=True)
    assert after.cached_tokens >= len(sequence(answer)) - 1


def test_an_unknown_response_is_told_with_its_field(world: World, talker: Talker) -> None:
    talker("One.")
    with pytest.raises(UnknownResponse, match="resp_x") as caught:
        world.begin("a", previous="resp_x")
    assert caught.value.param == "previous_response_id"


def test_without_a_store_nothing_can_be_continued(
    engine: LocalEngine, world: World, talker: Talker
) -> None:
    """W10"""
    talker("One.")
    world.path = None
    world.restart()
    answer = world.ask("a", store=True)
    with pytest.raises(InvalidOption, match="turned off"):
        world.begin("b", previous=answer.response_id)


@pytest.mark.parametrize("warm", [True, False])
def test_another_caller_sees_nothing(world: World, talker: Talker, warm: bool) -> None:
    """W65"""
    talker("One.", "Two.")
    answer = world.ask("a", store=True, caller="ada")
    if not warm:
        world.restart()
    for act in (
        world.service.chain,
        world.service.stored,
        world.service.delete,
        world.service.cancel,
    ):
        with pytest.raises(UnknownResponse):
            act(answer.response_id, "bob")
    with pytest.raises(UnknownResponse):
        world.begin("b", previous=answer.response_id, caller="bob")
    assert world.service.stored(answer.response_id, "ada").response["id"] == answer.response_id


def test_another_salt_uses_no_tokens_of_a_chain(world: World, talker: Talker) -> None:
    """W22"""
    talker("One.", "Two.")
    answer = world.ask("a", store=True, cache_salt="x")
    other = world.ask("b", previous=answer.response_id, cache_salt="y")
    assert (other.cache, other.cached_tokens) == ("cold_replay", 0)


@pytest.mark.parametrize("warm", [True, False])
def test_other_content_under_the_name_is_refused(
    world: World, talker: Talker, engine: LocalEngine, warm: bool
) -> None:
    """W24"""
    talker("One.", "Two.")
    answer = world.ask("a", store=True)
    engine.unload("talker")
    world.sources.clear()
    talker("Another.")
    if not warm:
        world.restart()
    with pytest.raises(ModelChanged, match="other content") as caught:
        world.begin("b", previous=answer.response_id)
    assert caught.value.param == "previous_response_id"


@pytest.mark.parametrize("warm", [True, False])
def test_a_chain_has_so_many_links_at_most(
    world: World, talker: Talker, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    """W24"""
    monkeypatch.setattr(chains, "MAX_LINKS", 3)
    monkeypatch.setattr("mlxnb.sessions.serving.filing.MAX_LINKS", 3)
    talker("One.")
    answers = world.stored_chain("a", "b", "c", "d")
    if not warm:
        world.restart()
    assert world.service.chain(answers[2].response_id, "").links == 3
    with pytest.raises(ChainTooLong, match="3"):
        world.begin("e", previous=answers[3].response_id)


def test_a_chain_ends_with_its_earlier_responses(world: World, talker: Talker) -> None:
    talker("One.", "Two.")
    answers = world.stored_chain("a", "b")
    world.service.delete(answers[0].response_id, "")
    world.restart()
    with pytest.raises(UnknownResponse, match=answers[0].response_id):
        world.begin("c", previous=answers[1].response_id)


def test_a_stored_chain_grows_linearly(world: World, talker: Talker) -> None:
    """C35"""
    talker("An answer of some length, as answers are.")
    answers = world.stored_chain(*["A question of some length."] * 12)
    sizes = [
        len(world.service.stored(a.response_id, "").tokens)
        + len(str(world.service.stored(a.response_id, "").messages))
        for a in answers
    ]
    assert max(sizes[1:]) <= min(sizes[1:]) + 16


def test_a_begun_answer_is_gone_on_with_in_a_chain(world: World, talker: Talker) -> None:
    talker("It is 42.", "Right.")
    begun = {"role": "assistant", "content": "It is"}
    answer = world.ask("What?", begun, continues_answer=True, store=True)
    assert answer.turn is not None and answer.turn.text == " 42."
    chain = world.service.chain(answer.response_id, "")
    assert [m["content"] for m in chain.messages] == ["What?", "It is 42."]
    after = world.ask("Sure?", previous=answer.response_id)
    assert after.cached_tokens >= len(sequence(answer)) - 1


def test_a_stateless_history_after_a_chain_is_found_by_content(
    world: World, talker: Talker
) -> None:
    talker("One.", "Two.")
    (first,) = world.stored_chain("a")
    said = {"role": "assistant", "content": "One."}
    again = world.ask(user("a"), said, user("b"))
    assert again.cache == "prefix_hit"
    assert again.cached_tokens >= len(sequence(first)) - 1


@pytest.mark.parametrize("warm", [True, False])
def test_instructions_in_the_midst_are_kept_as_they_were_said(
    world: World, talker: Talker, warm: bool
) -> None:
    """W17: merged into the system text for each prompt anew, and never twice."""
    talker("One.", "Two.", "Three.")  # its template leaves later system messages out
    begun = ({"role": "system", "content": "Then B."}, user("a"))
    first = world.ask(user("hi"), *begun, system="First A.", store=True)
    second = world.ask("b", previous=first.response_id, store=True)
    if not warm:
        world.restart()
    third = world.ask("c", previous=second.response_id, store=True)
    text = world.engine.core.runtime("talker").tokenizer.decode(third.request.prompt)
    assert text.count("First A.") == text.count("Then B.") == 1
    assert world.service.chain(third.response_id, "").system == "First A."
