"""Which tokens of an answer stay: all of them, or those before a stop string."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Sampling
from mlxnb.records.turn import TurnRecord
from mlxnb.sessions.kept import kept_output
from mlxnb.sessions.template import ChatTemplate
from mlxnb.text.answer import AnswerMachine

from .texts import plain_texts
from .tokenizers import backend, wrapped

KINDS = ("byte", "llama3", "trimming", "spm")
END = 1


def literal(kind: str) -> Any:
    return ChatTemplate(wrapped(kind)).literal


def generated(kind: str, tokens: list[int], *stops: str, limit: int = 10_000) -> Request:
    """A request that has generated these tokens, as far as it comes."""
    request = Request(
        model="m",
        prompt=[0],
        sampling=Sampling(max_tokens=limit, stop=stops).settled(),
        record=TurnRecord("t1", None, "m", "python", "here", dt.datetime.now(dt.UTC)),
        machine=AnswerMachine(
            think=("<think>", "</think>"),
            starts_in_reasoning=False,
            tool_tags=None,
            parse_tool=None,
            tools=None,
            stops=stops,
        ),
        detokenizer=wrapped(kind).detokenizer,
        end_tokens=frozenset({END}),
    )
    for token in tokens:
        request.accept(token)
        if request.ending is not None:
            break
    request.close_text(request.ending or "cancelled")
    return request


def text_of(kind: str, tokens: list[int]) -> str:
    before = backend(kind).encode("x", add_special_tokens=False).ids
    text: str = backend(kind).decode([*before, *tokens], skip_special_tokens=False)
    return text.removeprefix("x")


def test_an_answer_stays_as_generated() -> None:
    request = generated("byte", [5, 6, 7])
    assert kept_output(request, literal("byte")) == [5, 6, 7]


def test_an_end_token_is_left_out() -> None:
    assert kept_output(generated("byte", [5, 6, END]), literal("byte")) == [5, 6]


def test_an_end_token_alone_leaves_nothing() -> None:
    assert kept_output(generated("byte", [END]), literal("byte")) == []


def test_an_answer_cut_by_its_length_stays_whole() -> None:
    assert kept_output(generated("byte", [5, 6, 7], limit=2), literal("byte")) == [5, 6]


def test_a_stop_string_at_a_token_s_start_cuts_between_tokens() -> None:
    tokens = [*literal("byte")("one"), *literal("byte")("STOP")]
    request = generated("byte", tokens, "STOP")
    assert kept_output(request, literal("byte")) == literal("byte")("one")


def test_a_stop_string_inside_of_a_token_leaves_its_beginning_encoded_anew() -> None:
    name = "newlin"
    (token,) = literal("byte")(name)
    request = generated("byte", [*literal("byte")("a "), token], "lin")
    assert kept_output(request, literal("byte")) == [
        *literal("byte")("a "),
        *literal("byte")("new"),
    ]


def test_a_space_that_the_detokenizer_held_back_is_there_once() -> None:
    tokens = [*literal("byte")("a"), *literal("byte")(" "), *literal("byte")("STOP")]
    request = generated("byte", tokens, "STOP")
    assert text_of("byte", kept_output(request, literal("byte"))) == "a "


def test_thinking_stays_in_front_of_what_is_cut() -> None:
    thought = backend("byte").encode("<think>hm</think>", add_special_tokens=False).ids
    tokens = [*thought, *literal("byte")("fine STOP")]
    request = generated("byte", tokens, " STOP")
    assert kept_output(request, literal("byte")) == [*thought, *literal("byte")("fine")]


def test_a_stop_string_at_the_very_start_leaves_nothing() -> None:
    request = generated("byte", literal("byte")("STOP"), "STOP")
    assert kept_output(request, literal("byte")) == []


@pytest.mark.parametrize("kind", KINDS)
@given(plain_texts, plain_texts, st.data())
def test_what_stays_is_what_stands_before_the_stop_string(
    kind: str, first: str, second: str, data: st.DataObject
) -> None:
    assume("\0" not in first + second)  # mlx-lm's detokenizer makes another character of it
    answer = "xy" + first + second
    start = data.draw(st.integers(1, len(answer) - 1))
    stop = answer[start : start + data.draw(st.integers(1, 8))]
    tokens = literal(kind)(answer)
    request = generated(kind, tokens, stop)
    assume(request.machine.stop_sequence is not None)
    kept = kept_output(request, literal(kind))
    whole = text_of(kind, tokens)
    assert text_of(kind, kept) == whole[: whole.index(stop)]
    assert request.machine.text in text_of(kind, kept)


@pytest.mark.parametrize("kind", KINDS)
@given(plain_texts, st.data())
def test_as_many_tokens_stay_as_can(kind: str, text: str, data: st.DataObject) -> None:
    answer = "xy" + text
    start = data.draw(st.integers(1, len(answer) - 1))
    tokens = literal(kind)(answer)
    request = generated(kind, tokens, answer[start:])
    assume(request.machine.stop_sequence is not None)
    kept = kept_output(request, literal(kind))
    visible = text_of(kind, kept)
    fitting = [n for n in range(len(tokens)) if visible.startswith(text_of(kind, tokens[:n]))]
    assert kept[: fitting[-1]] == tokens[: fitting[-1]]
