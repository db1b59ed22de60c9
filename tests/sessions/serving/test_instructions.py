"""W17, C28: system messages in the midst of a conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scripted.folder import QWEN

from mlxnb.sessions.ask import Ask
from mlxnb.sessions.serving.instructions import placed
from mlxnb.sessions.template import ChatTemplate
from sessions.templates import FAMILIES, NO_SYSTEM
from sessions.tokenizers import wrapped

from .world import World


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


TALK = [
    said("system", "Answer kindly."),
    said("user", "alpha"),
    said("assistant", "beta"),
    said("user", "gamma"),
    said("system", "Now answer briefly."),
]
REFUSES = QWEN.replace(
    "{%- for message in messages %}",
    "{%- for message in messages %}{%- if message.role == 'system' and not loop.first %}"
    "{{- raise_exception('system comes first') }}{%- endif %}",
    1,
)


def template(family: str = "smollm2", text: str | None = None) -> ChatTemplate:
    return ChatTemplate(wrapped("byte", family, text))


@pytest.mark.parametrize("family", ["qwen25", "qwen3", "llama3", "smollm2"])
def test_they_stay_where_the_template_writes_them(family: str) -> None:
    assert placed(TALK, template(family), None) == tuple(TALK)


@pytest.mark.parametrize("text", [QWEN, REFUSES], ids=["leaves out", "refuses"])
def test_elsewhere_they_are_merged_into_the_system_text(text: str) -> None:
    assert placed(TALK, template(text=text), None) == (
        said("system", "Answer kindly.\n\nNow answer briefly."),
        *TALK[1:4],
    )


@pytest.mark.parametrize("text", [QWEN, REFUSES], ids=["leaves out", "refuses"])
def test_without_a_system_text_they_become_one(text: str) -> None:
    found = placed(TALK[1:], template(text=text), None)
    assert found[0] == said("system", "Now answer briefly.")


def test_messages_that_they_stood_between_are_one() -> None:
    messages = [said("user", "a"), said("system", "s"), said("user", "b")]
    assert placed(messages, template(text=QWEN), None) == (
        said("system", "s"),
        said("user", "a\nb"),
    )


def test_an_answer_that_is_to_go_on_stays_the_last() -> None:
    messages = [*TALK, said("assistant", "Well")]
    assert placed(messages, template(text=QWEN), None)[-1] == said("assistant", "Well")
    assert placed(messages, template("qwen25"), None) == tuple(messages)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - NO_SYSTEM))
def test_no_family_loses_one(family: str) -> None:
    made = template(family)
    text = made.render(placed(TALK, made, None))
    assert all(text.count(message["content"]) == 1 for message in TALK)


def test_a_conversation_without_them_is_not_rendered() -> None:
    made = template(text="{{ raise_exception('never') }}")
    assert placed(TALK[:4], made, None) == tuple(TALK[:4])


def test_the_model_is_prompted_with_the_merged_text(
    world: World, talker: Callable[..., str]
) -> None:
    name = talker("Hello.")  # its template leaves such messages out
    given = Ask(name, (said("user", "a"), said("system", "s"), said("user", "b")), "messages")
    merged = Ask(name, (said("user", "a\nb"),), "messages", system="s")
    assert world.service.count(given) == world.service.count(merged)


def test_a_continuation_gets_it_too(world: World, talker: Callable[..., str]) -> None:
    name = talker("Hello.", "Again.")
    previous = world.ask("a", store=True).response_id
    new = (said("system", "s"), said("user", "b"))
    with_it = world.service.count(Ask(name, new, "responses", previous=previous))
    without = world.service.count(Ask(name, new[1:], "responses", previous=previous))
    assert with_it > without
