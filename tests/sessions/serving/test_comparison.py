"""Why an earlier answer's prefix was missed: W60."""

from __future__ import annotations

from collections.abc import Callable

from scripted import Gate, model_of

from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.answer import Answer

from .world import World, user

Talker = Callable[..., str]
LONG = "Talk to the user about whatever the user would like to talk about, and be kind."


def reason(world: World, answer: Answer, other: str | None) -> str | None:
    miss = world.service.diagnose(answer, other, answer.ask.caller)
    return None if miss is None else miss.reason


def test_nothing_is_told_where_nothing_was_asked_or_missed(world: World, talker: Talker) -> None:
    talker("One.", "Two.")
    first, second = world.stateless("a", "b")
    assert reason(world, second, None) is None
    assert reason(world, second, first.response_id) is None


def test_another_system_text_is_named_with_what_it_cost(world: World, talker: Talker) -> None:
    talker("One.")
    first = world.ask(LONG, system=f"Long. {LONG}")
    second = world.ask(LONG, system=f"Short. {LONG}")
    miss = world.service.diagnose(second, first.response_id, "")
    assert miss is not None
    assert miss.reason == "system_changed"
    assert miss.tokens_lost > 10
    assert reason(world, second, f"msg_{first.response_id.partition('_')[2]}") == miss.reason


def test_it_is_what_explain_says(world: World, talker: Talker, engine: LocalEngine) -> None:
    talker("One.", "Two.")
    first = world.ask("a")
    said = {"role": "assistant", "content": "Never."}
    second = world.ask(user("a"), said, user("b"))
    miss = world.service.diagnose(second, first.response_id, "")
    explained = engine.explain(second.id)
    assert miss is not None
    assert (miss.reason, miss.tokens_lost) == (explained.reason, explained.tokens_lost)


def test_it_is_known_before_anything_is_computed(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    talker("One.")
    first = world.ask(LONG, system=f"Long. {LONG}")
    with Gate(model_of(engine, "talker")) as gate:
        following = world.begin(LONG, system=f"Short. {LONG}")
        gate.wait()
        early = world.service.diagnose(following.answer, first.response_id, "")
    following.wait()
    assert early == world.service.diagnose(following.answer, first.response_id, "")


def test_another_callers_or_salts_answer_is_not_found(world: World, talker: Talker) -> None:
    talker("One.")
    first = world.ask("a", caller="ada")
    for options in ({"caller": "bob"}, {"caller": "ada", "cache_salt": "x"}):
        other = world.ask("a", **options)
        assert reason(world, other, first.response_id) == "not_found"
    assert reason(world, first, "resp_abcdefgh_0") == "not_found"
