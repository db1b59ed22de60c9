"""Answers that are held to a form, token by token."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper
from scripted import QWEN, tokenizer_of

from mlxnb.engine.form import Form
from mlxnb.engine.guide import guides
from mlxnb.engine.vocabulary import Vocabulary
from mlxnb.errors import InvalidOption

PROMPT = [5, 6, 7]
CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
TOOLS = {"get_weather": CITY, "get_time": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    from mlx_lm.tool_parsers import json_tools

    tokenizer = tokenizer_of(QWEN)
    wrapper = TokenizerWrapper(
        tokenizer,
        tool_call_start="<tool_call>",
        tool_call_end="</tool_call>",
        tool_parser=json_tools.parse_tool_call,
    )
    return Vocabulary(wrapper, len(tokenizer) + 7, frozenset({tokenizer.eos_token_id}))


class Walk:
    """Draws an answer from random logits, and from those of a wanted text before."""

    def __init__(self, vocabulary: Vocabulary, form: Form, reasons: bool | None = None) -> None:
        self.vocabulary = vocabulary
        self.guides = guides(vocabulary, form, len(PROMPT), reasons)
        self.output: list[int] = []
        self.ended = False

    def logits(self, raw: mx.array) -> mx.array:
        tokens = mx.array(PROMPT + self.output)
        for guide in self.guides:
            raw = guide(tokens, raw)
        return raw

    def allowed(self) -> set[int]:
        kept = np.array(self.logits(mx.zeros((1, self.vocabulary.size))))[0] == 0
        return set(np.flatnonzero(kept).tolist())

    def say(self, text: str) -> Walk:
        """Draw these tokens, each of which must be allowed."""
        for token in self.vocabulary.encode(text):
            assert token in self.allowed(), text
            self.output.append(token)
        return self

    def draw(self, seed: int, limit: int = 400) -> str:
        random = np.random.default_rng(seed)
        while len(self.output) < limit:
            raw = mx.array(random.normal(size=(1, self.vocabulary.size)).astype(np.float32) * 3)
            token = int(mx.argmax(self.logits(raw), axis=-1).item())
            if token in self.vocabulary.ends:
                self.ended = True
                break
            self.output.append(token)
        return self.text

    @property
    def text(self) -> str:
        return str(self.vocabulary.tokens.decode_str(self.output))


BOUNDED: list[dict[str, Any]] = [
    CITY,
    {"type": "integer", "minimum": -5, "maximum": 1200},
    {"type": "array", "items": {"enum": [1, "two", None]}, "maxItems": 3},
    {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 4}]},
    {
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 5}, "b": {"$ref": "#/$defs/b"}},
        "required": ["a", "b"],
        "additionalProperties": False,
        "$defs": {"b": {"type": "string", "pattern": "^[a-c]{2,4}$"}},
    },
]


@pytest.mark.parametrize("schema", BOUNDED, ids=range(len(BOUNDED)))
@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_model_likes_the_text_conforms(
    vocabulary: Vocabulary, schema: dict[str, Any], seed: int
) -> None:
    walk = Walk(vocabulary, Form(schema=schema), reasons=False)
    text = walk.draw(seed)
    assert walk.ended
    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("seed", range(6))
def test_a_required_call_is_one_of_the_tools(vocabulary: Vocabulary, seed: int) -> None:
    walk = Walk(vocabulary, Form(tools=TOOLS, required=True, parallel=False), reasons=False)
    body = walk.draw(seed).strip().removeprefix("<tool_call>").removesuffix("</tool_call>")
    call = json.loads(body)
    assert walk.ended
    jsonschema.validate(call["arguments"], TOOLS[call["name"]])


def test_a_named_tool_is_the_only_one(vocabulary: Vocabulary) -> None:
    walk = Walk(vocabulary, Form(tools=TOOLS, names=("get_time",), required=True), reasons=False)
    assert '"name": "get_time"' in walk.draw(1)


def test_the_model_may_reason_first_and_then_must_conform(vocabulary: Vocabulary) -> None:
    walk = Walk(vocabulary, Form(schema=CITY)).say("<think>Well, {.</think>\n")
    jsonschema.validate(json.loads(walk.draw(3).partition("</think>")[2]), CITY)


def test_reasoning_that_the_prompt_opened_is_free(vocabulary: Vocabulary) -> None:
    walk = Walk(vocabulary, Form(schema=CITY), reasons=True).say("no json</think>")
    jsonschema.validate(json.loads(walk.draw(4).partition("</think>")[2]), CITY)


def test_a_model_told_not_to_reason_cannot(vocabulary: Vocabulary) -> None:
    (tag,) = vocabulary.encode("<think>")
    assert tag in Walk(vocabulary, Form(schema=CITY)).allowed()
    assert tag not in Walk(vocabulary, Form(schema=CITY), reasons=False).allowed()


def test_with_tools_and_a_schema_it_is_either(vocabulary: Vocabulary) -> None:
    form = Form(schema=CITY, tools=TOOLS)
    Walk(vocabulary, form).say('{"city": "Rome"}')
    Walk(vocabulary, form).say('<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>')


def test_a_request_set_back_is_held_as_before(vocabulary: Vocabulary) -> None:
    walk = Walk(vocabulary, Form(schema=CITY), reasons=False).say('{"city": "')
    at, allowed = list(walk.output), walk.allowed()
    walk.say("Paris")
    walk.output = at
    assert walk.allowed() == allowed
    walk.output = []
    assert walk.allowed() == Walk(vocabulary, Form(schema=CITY), reasons=False).allowed()


def test_outside_of_calls_the_logits_are_untouched(vocabulary: Vocabulary) -> None:
    walk = Walk(vocabulary, Form(tools=TOOLS)).say("anything {")
    raw = mx.zeros((1, vocabulary.size))
    assert walk.logits(raw) is raw


def test_a_call_that_the_model_opens_is_held_to_its_schema(vocabulary: Vocabulary) -> None:
    walk = Walk(vocabulary, Form(tools=TOOLS)).say("I look. <tool_call>")
    (guide,) = walk.guides
    assert walk.allowed() != set(range(vocabulary.size))
    assert guide.claim()
    assert not guide.claim()
    walk.say('\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>')
    assert walk.allowed() == set(range(vocabulary.size))


def test_each_call_is_held(vocabulary: Vocabulary) -> None:
    one = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    walk = Walk(vocabulary, Form(tools=TOOLS)).say(f"{one}\n{one}\n<tool_call>")
    walk.allowed()
    assert [walk.guides[0].claim() for _ in range(4)] == [True, True, True, False]


def test_a_tag_inside_reasoning_opens_no_call(vocabulary: Vocabulary) -> None:
    walk = Walk(vocabulary, Form(tools=TOOLS)).say("<think><tool_call>")
    assert walk.allowed() == set(range(vocabulary.size))
    walk.say("</think><tool_call>")
    assert walk.allowed() != set(range(vocabulary.size))


def test_arguments_are_not_made_up(vocabulary: Vocabulary) -> None:
    walk = Walk(vocabulary, Form(tools=TOOLS, required=True), reasons=False)
    walk.say('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"')
    (comma,) = vocabulary.encode(",")
    assert comma not in walk.allowed()


@pytest.mark.parametrize("opened", [True, False])
def test_reasoning_ends_when_its_budget_is_used(vocabulary: Vocabulary, opened: bool) -> None:
    walk = Walk(vocabulary, Form(reasoning_tokens=3), reasons=opened or None)
    (end,) = vocabulary.encode("</think>")
    if not opened:
        walk.say("<think>")
    for _ in range(3):
        assert walk.allowed() == set(range(vocabulary.size))
        walk.output += vocabulary.encode("a")
    assert walk.allowed() == {end}
    walk.output.append(end)
    assert walk.allowed() == set(range(vocabulary.size))


def test_reasoning_that_ends_in_time_is_left_alone(vocabulary: Vocabulary) -> None:
    walk = Walk(vocabulary, Form(reasoning_tokens=3), reasons=True).say("a</think>abcdef")
    assert walk.allowed() == set(range(vocabulary.size))


def test_a_budget_of_nothing_ends_it_at_once(vocabulary: Vocabulary) -> None:
    walk = Walk(vocabulary, Form(reasoning_tokens=0), reasons=True)
    assert walk.allowed() == set(vocabulary.encode("</think>"))


def test_an_answer_that_begins_wrong_is_refused(vocabulary: Vocabulary) -> None:
    begun = vocabulary.encode('{"town')
    with pytest.raises(InvalidOption, match="beginning of the answer"):
        guides(vocabulary, Form(schema=CITY), len(PROMPT), False, begun)


def test_an_answer_that_has_begun_goes_on(vocabulary: Vocabulary) -> None:
    begun = vocabulary.encode('{"city": "R')
    (guide,) = guides(vocabulary, Form(schema=CITY), len(PROMPT), False, begun)
    kept = np.array(guide(mx.array(PROMPT), mx.zeros((1, vocabulary.size))))[0] == 0
    assert vocabulary.encode("o")[0] in np.flatnonzero(kept)


def test_a_form_that_asks_for_nothing_has_no_guide(vocabulary: Vocabulary) -> None:
    assert guides(vocabulary, Form(), len(PROMPT), None) == []
