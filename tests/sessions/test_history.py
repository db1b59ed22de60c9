"""What the next prompt begins with, turn after turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxnb.sessions.history import History
from mlxnb.sessions.messages import Message
from mlxnb.sessions.template import ChatTemplate, Rendered

from .templates import FAMILIES, MISBEHAVING, NO_SYSTEM, SMOLLM2
from .texts import texts
from .tokenizers import backend, wrapped

KINDS = ("byte", "llama3", "spm")
# the families whose templates write an earlier answer as it was generated
KEEPING = sorted(FAMILIES.keys() - {"deepseek", "llama2", "mistral3"})
answers = texts.map(str.strip)
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


class Talk:
    """A conversation whose answers are given: prompts and outputs as an engine would have them."""

    def __init__(self, kind: str, family: str, system: str | None = None, **options: Any) -> None:
        self.kind = kind
        self.template = ChatTemplate(wrapped(kind, family), options)
        self.end = backend(kind).token_to_id(FAMILIES[family][2])
        said = () if system is None or family in NO_SYSTEM else ("system",)
        self.history = History(tuple({"role": role, "content": system} for role in said))
        self.prompts: list[Rendered] = []

    def turn(self, text: str, answer: str = "fine", **more: Any) -> Rendered:
        return self.turns([user(text)], answer, **more)

    def turns(self, new: list[Message], answer: str, **more: Any) -> Rendered:
        """``answer`` is what was generated; ``more`` is how its message differs from that."""
        prompt = self.history.prompt(new, self.template, None)
        output = self.template.literal(answer)
        message = {"role": "assistant", "content": answer, **more}
        self.history = self.history.after(new, message, prompt, output)
        self.prompts.append(prompt)
        return prompt

    def text(self, tokens: list[int]) -> str:
        return str(wrapped(self.kind).decode(tokens))


# --- exact history ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=10)
@given(st.lists(st.tuples(texts, answers), min_size=2, max_size=4))
def test_a_prompt_begins_with_the_last_one_and_its_answer(
    family: str, kind: str, said: list[tuple[str, str]]
) -> None:
    talk = Talk(kind, family, system="Be brief.")
    before: list[int] = []
    for text, answer in said:
        prompt = talk.turn(text, answer)
        assert prompt.tokens[: len(before)] == before
        before = [*prompt.tokens, *talk.template.literal(answer)]
        assert talk.history.line.tokens == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", KEEPING)
@settings(max_examples=10)
@given(st.lists(st.tuples(texts, answers.filter(bool)), min_size=2, max_size=4))
def test_a_continued_prompt_says_what_a_whole_one_says(
    family: str, kind: str, said: list[tuple[str, str]]
) -> None:
    talk = Talk(kind, family, system="Be brief.")
    for text, answer in said:
        whole = talk.template.conversation([*talk.history.messages, user(text)], None)
        assert talk.text(talk.turn(text, answer).tokens) == talk.text(whole.tokens)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_s_end_token_is_there_once(family: str, kind: str) -> None:
    talk = Talk(kind, family)
    first = talk.turn("hi")
    second = talk.turn("again")
    between = second.tokens[len(first.tokens) :]
    assert between.count(talk.end) <= first.tokens.count(talk.end) + 1
    assert "".join(talk.text(between).split()).startswith("fine")
    if family != "plain":
        after = talk.text(second.tokens[len(first.tokens) + len(talk.template.literal("fine")) :])
        assert after.lstrip().startswith(FAMILIES[family][2])


def test_thinking_stays_although_the_template_would_drop_it() -> None:
    talk = Talk("byte", "qwen3")
    talk.turn("hi", "<think>\nhm\n</think>\n\nfine", content="fine", reasoning_content="hm")
    assert "<think>\nhm\n</think>\n\nfine<|im_end|>" in talk.text(talk.turn("again").tokens)
    whole = talk.template.conversation([*talk.history.messages, user("more")], None)
    assert "hm" not in talk.text(whole.tokens)


def test_a_thought_that_the_prompt_opened_stays_open_to_the_model_s_own_end() -> None:
    talk = Talk("byte", "deepseek")
    first = talk.turn("hi", "hm</think>fine", content="fine", reasoning_content="hm")
    assert first.opens_reasoning
    second = talk.turn("again")
    assert "<think>\nhm</think>fine</s><|User|>again" in talk.text(second.tokens)
    assert second.opens_reasoning


def test_a_day_that_passes_changes_nothing_of_what_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = Talk("byte", "llama31", system="Be brief.")
    first = talk.turn("hi")
    render = talk.template.render
    ticks = iter(range(100))
    monkeypatch.setattr(
        ChatTemplate,
        "render",
        lambda self, *given: render(*given).replace("Today Date", f"Tick {next(ticks)}"),
    )
    second = talk.turn("again")
    assert second.tokens[: len(first.tokens)] == first.tokens


def test_results_of_calls_follow_the_call_as_it_was_generated() -> None:
    talk = Talk("byte", "qwen25")
    talk.turn("2 + 2?", '<tool_call>{"name":"add"}</tool_call>', content="", tool_calls=[CALL])
    result = {"role": "tool", "content": "4", "name": "add", "tool_call_id": "c1"}
    text = talk.text(talk.turns([result], "4.").tokens)
    assert "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n4\n</tool_response>" in text
    assert '{"name":"add"}' in text


# --- where it cannot be continued -------------------------------------------------------------


def talk_with(template: str) -> Talk:
    talk = Talk("byte", "smollm2")
    talk.template = ChatTemplate(wrapped("byte", template=template))
    return talk


@pytest.mark.parametrize("name", sorted(MISBEHAVING.keys() - {"newest_first", "counts"}))
def test_a_template_that_rewrites_an_answer_renders_anew(name: str) -> None:
    talk = talk_with(MISBEHAVING[name])
    talk.turn("hi", "a long enough answer")
    prompt = talk.turn("again")
    whole = talk.template.conversation(list(talk.history.messages[:-1]), None)
    assert prompt.tokens == whole.tokens


def test_what_a_template_writes_after_an_answer_must_not_depend_on_it() -> None:
    talk = talk_with(SMOLLM2 + "{{ messages[1].content[1:9] if messages[1] }}")
    talk.turn("hi")
    assert talk.template.continuation([*talk.history.messages, user("x")], 1, None) is None


def test_a_template_that_refuses_what_comes_next_refuses() -> None:
    talk = Talk("byte", "mistral")
    talk.turn("hi")
    messages = [*talk.history.messages, {"role": "system", "content": "x"}]
    assert talk.template.continuation(messages, 1, None) is None


def test_what_is_not_continued_is_known_to_the_marks() -> None:
    """Back before a turn that was rendered anew, the tokens are those that were there then."""
    talk = talk_with(SMOLLM2)
    first = talk.turn("hi", "<think>hm</think>fine", content="fine")
    kept = talk.history.line.tokens
    rewriting = SMOLLM2.replace("message['content'] +", "message['content'] * 2 +")
    talk.template = ChatTemplate(wrapped("byte", template=rewriting))
    second = talk.turn("again")
    assert second.tokens[: len(kept)] != kept
    back = talk.history.rewound(1)
    assert back.line.tokens == kept
    assert kept[: len(first.tokens)] == first.tokens


# --- back, and on from there ------------------------------------------------------------------


@given(st.lists(st.tuples(texts, answers), min_size=1, max_size=5), st.data())
def test_back_is_where_it_was(said: list[tuple[str, str]], data: st.DataObject) -> None:
    talk = Talk("byte", "qwen3", system="Be brief.")
    past = [talk.history]
    for text, answer in said:
        talk.turn(text, answer)
        past.append(talk.history)
    turns = data.draw(st.integers(1, len(said)))
    back, there = talk.history.rewound(turns), past[-1 - turns]
    assert back.messages == there.messages
    assert back.line.tokens == there.line.tokens
    assert back.line.spans == there.line.spans
    assert back.turns == there.turns
    again = Talk("byte", "qwen3")
    again.history = back
    text, answer = said[len(said) - turns]
    assert again.turn(text, answer).tokens == talk.prompts[len(said) - turns].tokens


def test_back_to_the_beginning_keeps_the_system_text() -> None:
    talk = Talk("byte", "smollm2", system="Be brief.")
    talk.turn("hi")
    talk.turn("again")
    back = talk.history.rewound(2)
    assert back.messages == ({"role": "system", "content": "Be brief."},)
    assert back.line.tokens == []


def test_a_history_never_changes() -> None:
    talk = Talk("byte", "smollm2")
    talk.turn("hi")
    before = talk.history
    tokens, messages = list(before.line.tokens), before.messages
    talk.turn("again")
    assert before.line.tokens == tokens
    assert before.messages == messages
    assert before.turns == 1


def test_marks_share_the_tokens_of_the_newest_turn() -> None:
    """Memory grows with the conversation, not with its square."""
    talk = Talk("byte", "smollm2")
    for number in range(5):
        talk.turn(f"turn {number}")
    assert {id(mark.line) for mark in talk.history.marks} == {id(talk.history.line)}
    back = talk.history.rewound(2)
    assert {id(mark.line) for mark in back.marks} == {id(back.line)}


def test_without_tokens_all_is_rendered_anew_wherever_one_goes_back_to() -> None:
    talk = Talk("byte", "smollm2")
    for number in range(3):
        talk.turn(f"turn {number}")
    bare = talk.history.without_tokens()
    assert bare.messages == talk.history.messages
    assert bare.turns == 3
    assert bare.line.tokens == bare.rewound(1).line.tokens == []


def test_template_history_keeps_no_tokens() -> None:
    talk = Talk("byte", "smollm2")
    prompt = talk.history.prompt([user("hi")], talk.template, None)
    answer = {"role": "assistant", "content": "fine"}
    history = talk.history.after([user("hi")], answer, None, [])
    assert history.line.tokens == []
    assert history.turns == 1
    assert prompt.tokens


# --- calls that wait --------------------------------------------------------------------------


def test_calls_of_the_last_answer_are_pending() -> None:
    talk = Talk("byte", "qwen25")
    talk.turn("2 + 2?", "x", tool_calls=[CALL, {**CALL, "id": "c2"}])
    assert talk.history.pending == {"c1": "add", "c2": "add"}
    result = {"role": "tool", "content": "4", "name": "add", "tool_call_id": "c1"}
    talk.turns([result, {**result, "tool_call_id": "c2"}], "4.")
    assert talk.history.pending == {}
    assert talk.history.rewound(1).pending == {"c1": "add", "c2": "add"}
    assert talk.history.rewound(2).pending == {}


# --- whose tokens are whose -------------------------------------------------------------------


@given(st.lists(st.tuples(texts, answers.filter(bool)), min_size=2, max_size=4))
def test_spans_of_a_continued_prompt_name_every_message(said: list[tuple[str, str]]) -> None:
    talk = Talk("byte", "smollm2", system="Be brief.")
    for text, answer in said:
        prompt = talk.turn(text, answer)
    ends = [0, *(span.end for span in prompt.spans)]
    assert ends[:-1] == [span.start for span in prompt.spans]
    assert ends[-1] == len(prompt.tokens)
    found = {s.message: s for s in prompt.spans if s.role != "template"}
    for number, message in enumerate(talk.history.messages[:-1]):
        if message["content"].strip():
            span = found[number]
            text = talk.text(prompt.tokens[span.start : span.end])
            assert (span.role, text.strip()) == (message["role"], message["content"].strip())


def test_a_line_without_borders_stays_without() -> None:
    """This template shouts the system text, and nothing else."""
    shouting = "{% set m = messages[0] %}{{ m.content | upper }}" + SMOLLM2.replace(
        "in messages %}", "in messages[1:] %}"
    )
    talk = talk_with(shouting)
    talk.history = History(({"role": "system", "content": "Be brief."},))
    first = talk.turn("hi")
    second = talk.turn("again")
    assert second.tokens[: len(first.tokens)] == first.tokens
    assert first.spans == second.spans == []
