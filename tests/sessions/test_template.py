"""Whole conversations: their text, whose tokens are whose, and templates that will not have it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.errors import TemplateFailed
from mlxnb.sessions.template import ChatTemplate, Rendered

from .templates import FAMILIES, MISBEHAVING, NO_SYSTEM, RAISES, SMOLLM2, today
from .texts import plain_texts, texts
from .tokenizers import KINDS, wrapped

Message = dict[str, Any]
SAYS = {"system": "Be brief.", "user": "Is 2 + 2 = 4?", "assistant": "It is, I think."}
CALL = {"id": "c1", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def conversation(family: str, *said: str) -> list[Message]:
    """System, user, assistant, user …, in so far as the family knows them."""
    roles = ["system", *["user", "assistant"] * len(said)][: len(said)]
    messages = [{"role": role, "content": text} for role, text in zip(roles, said, strict=True)]
    return messages[1:] if family in NO_SYSTEM else messages


def texts_of(kind: str, rendered: Rendered) -> dict[tuple[int, str], str]:
    """The text of each message by its spans."""
    return {
        (span.message, span.role): wrapped(kind).decode(rendered.tokens[span.start : span.end])
        for span in rendered.spans
        if span.role != "template"
    }


# --- the text ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "spm_legacy"])
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_say_what_the_template_writes(family: str, kind: str) -> None:
    template = ChatTemplate(wrapped(kind, family))
    messages = conversation(family, *SAYS.values(), "<|im_end|> </s> and\n <think>?")
    tokens = template.conversation(messages, None).tokens
    assert wrapped(kind).decode(tokens) == template.render(messages)


@pytest.mark.parametrize("family", FAMILIES)
def test_harmless_text_is_encoded_as_a_whole(family: str) -> None:
    template = ChatTemplate(wrapped("spm_legacy", family))
    messages = conversation(family, *SAYS.values(), "  Two\n\nlines ")
    plain = wrapped("spm_legacy").encode(template.render(messages), add_special_tokens=False)
    assert template.conversation(messages, None).tokens == plain


def test_the_day_is_the_template_s_own() -> None:
    tokens = ChatTemplate(wrapped("byte", "llama31")).conversation(
        [{"role": "user", "content": "hi"}], None
    )
    assert today() in wrapped("byte").decode(tokens.tokens)


def test_options_reach_the_template() -> None:
    messages = [{"role": "user", "content": "hi"}]
    quiet = ChatTemplate(wrapped("byte", "qwen3"), {"enable_thinking": False})
    assert quiet.render(messages).endswith("<think>\n\n</think>\n\n")
    loud = ChatTemplate(wrapped("byte", "qwen3"), {"enable_thinking": True})
    assert loud.render(messages).endswith("<|im_start|>assistant\n")


def test_tools_are_shown_with_their_keys_in_order() -> None:
    tool = {"type": "function", "function": {"name": "add", "description": "b", "a": {}}}
    text = ChatTemplate(wrapped("byte", "llama31")).render(
        [{"role": "user", "content": "hi"}], [tool]
    )
    assert text.index('"type"') < text.index('"description"') < text.index('"a"')


# --- thinking ---------------------------------------------------------------------------------


def test_a_prompt_that_ends_in_a_think_tag_opens_reasoning() -> None:
    template = ChatTemplate(wrapped("byte", "deepseek"))
    assert template.conversation([{"role": "user", "content": "hi"}], None).opens_reasoning


def test_a_thought_that_the_template_closes_is_not_open() -> None:
    template = ChatTemplate(wrapped("byte", "qwen3"), {"enable_thinking": False})
    assert not template.conversation([{"role": "user", "content": "hi"}], None).opens_reasoning


def test_a_user_s_think_tag_opens_nothing() -> None:
    bare = "{% for message in messages %}{{ message.content }}{% endfor %}"
    template = ChatTemplate(wrapped("byte", template=bare))
    assert not template.conversation([{"role": "user", "content": "<think>"}], None).opens_reasoning


# --- whose tokens are whose -------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "mistral3"])
def test_spans_hold_the_text_of_each_message(family: str, kind: str) -> None:
    template = ChatTemplate(wrapped(kind, family))
    messages = conversation(family, *SAYS.values(), "Why\n\n<|im_end|> 漢?")
    found = texts_of(kind, template.conversation(messages, None))
    assert {key: text.strip() for key, text in found.items()} == {
        (number, message["role"]): message["content"] for number, message in enumerate(messages)
    }


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(texts, min_size=2, max_size=6), st.sampled_from(["smollm2", "qwen3", "llama3"]))
def test_spans_cover_every_token_once_and_in_order(kind: str, said: list[str], family: str) -> None:
    rendered = ChatTemplate(wrapped(kind, family)).conversation(conversation(family, *said), None)
    if rendered.spans:
        ends = [0, *(span.end for span in rendered.spans)]
        assert ends[:-1] == [span.start for span in rendered.spans]
        assert ends[-1] == len(rendered.tokens)


@pytest.mark.parametrize("kind", ["byte", "trimming", "llama3"])
@given(st.lists(texts, min_size=2, max_size=6))
def test_a_span_has_its_text_and_at_most_what_shares_a_token(kind: str, said: list[str]) -> None:
    """Only white space is joined with what this template writes around it."""
    messages = conversation("smollm2", *said)
    rendered = ChatTemplate(wrapped(kind)).conversation(messages, None)
    found = texts_of(kind, rendered)
    for number, message in enumerate(messages):
        text = found.get((number, message["role"]), "")
        assert text.strip() == message["content"].strip()
        assert message["content"].endswith(text.lstrip("\n")) or text.isspace()


def test_a_token_with_the_end_of_a_text_and_more_is_the_text_s() -> None:
    template = ChatTemplate(wrapped("llama3", "plain"))
    rendered = template.conversation([{"role": "user", "content": "newlines\n"}], None)
    assert texts_of("llama3", rendered) == {(0, "user"): "newlines\n\n"}


def test_a_message_without_text_has_no_span() -> None:
    messages: list[Message] = [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "4", "name": "add", "tool_call_id": "c1"},
    ]
    rendered = ChatTemplate(wrapped("byte", "qwen25")).conversation(messages, [TOOL])
    assert texts_of("byte", rendered) == {(0, "user"): "2 + 2?", (2, "tool"): "4"}


def test_a_system_text_of_the_template_s_own_is_the_template_s() -> None:
    rendered = ChatTemplate(wrapped("byte")).conversation([{"role": "user", "content": "hi"}], None)
    first = rendered.spans[0]
    assert first.role == "template"
    assert "SmolLM" in wrapped("byte").decode(rendered.tokens[: first.end])


# --- templates that will not have it ----------------------------------------------------------


def test_a_template_s_own_words_are_the_error() -> None:
    template = ChatTemplate(wrapped("byte", template=RAISES))
    with pytest.raises(TemplateFailed, match="failed: I never liked conversations"):
        template.conversation([{"role": "user", "content": "hi"}], None)


@pytest.mark.parametrize("family", sorted(NO_SYSTEM))
def test_roles_that_a_template_does_not_know_are_refused_by_it(family: str) -> None:
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}]
    with pytest.raises(TemplateFailed, match=r"not supported|must alternate"):
        ChatTemplate(wrapped("byte", family)).conversation(messages, None)


def test_a_fault_of_a_template_is_a_refusal_too() -> None:
    template = ChatTemplate(wrapped("byte", template="{{ messages[0].content + 1 }}"))
    with pytest.raises(TemplateFailed, match="can only concatenate str"):
        template.conversation([{"role": "user", "content": "hi"}], None)


@pytest.mark.parametrize("name", MISBEHAVING)
def test_a_template_that_rewrites_texts_has_no_borders(name: str) -> None:
    template = ChatTemplate(wrapped("byte", template=MISBEHAVING[name]))
    rendered = template.conversation(conversation("smollm2", *SAYS.values(), "so?"), None)
    assert rendered.tokens
    assert rendered.spans == []


def test_a_template_that_refuses_other_texts_has_no_borders() -> None:
    picky = "{% if 'Q' in messages[0].content %}{{ raise_exception('no Q') }}{% endif %}ok"
    rendered = ChatTemplate(wrapped("byte", template=picky)).conversation(
        [{"role": "user", "content": "hi"}], None
    )
    assert wrapped("byte").decode(rendered.tokens) == "ok"
    assert rendered.spans == []


def test_a_template_that_adds_something_to_some_texts_has_no_borders_there() -> None:
    polite = SMOLLM2 + "{% if 'please' in messages[-1].content %}Thanks!{% endif %}"
    template = ChatTemplate(wrapped("byte", template=polite))
    assert template.conversation([{"role": "user", "content": "more"}], None).spans
    assert not template.conversation([{"role": "user", "content": "more, please"}], None).spans


@given(plain_texts)
def test_stripped_texts_have_their_borders_where_they_stand(text: str) -> None:
    rendered = ChatTemplate(wrapped("byte", "gemma")).conversation(
        [{"role": "user", "content": text}], None
    )
    found = texts_of("byte", rendered)
    assert found.get((0, "user"), "") == text.strip()
