"""docs/fields-responses.md says of every field what the code does with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from pydantic import BaseModel

from mlxnb.wire.errors import WireError
from mlxnb.wire.responses import Machine, ask, parse
from mlxnb.wire.responses.items import _KINDS
from mlxnb.wire.responses.request import PromptCacheOptions, Reasoning, ResponsesRequest, Text

from .answers import FakeAnswer, FakeChain, call, text, thought, turn

PAGE = Path(__file__).parents[2] / "docs" / "fields-responses.md"
TOOL = {"type": "function", "name": "f"}
BASE: dict[str, Any] = {"model": "m", "input": "hi", "tools": [TOOL]}
USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
CUSTOM = {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": ""}

EXAMPLES: dict[str, Any] = {
    "model": "other",
    "input": "ho",
    "instructions": "Be brief.",
    "stream": True,
    "max_output_tokens": 5,
    "previous_response_id": "resp_1",
    "store": False,
    "metadata": {"retention_seconds": 60},
    "tools": [],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "reasoning.effort": "low",
    "reasoning.summary": "auto",
    "reasoning.generate_summary": "auto",
    "text.format": {"type": "json_object"},
    "text.verbosity": "low",
    "temperature": 0.5,
    "top_p": 0.5,
    "prompt_cache_key": "a key of mine",
    "prompt_cache_options.comparison_response_id": "resp_1",
    "prompt_cache_options.prewarm": True,
    "prompt_cache_options.mode": "explicit",
    "prompt_cache_options.ttl": "12h",
    "prompt_cache_retention": "24h",
    "truncation": "auto",
    "include": ["reasoning.encrypted_content"],
    "user": "u",
    "safety_identifier": "s",
    "max_tool_calls": 3,
    "service_tier": "flex",
    "stream_options": {"include_obfuscation": False},
    "context_management": [{"type": "compaction"}],
    "access_programs": {"cyber": "standard"},
    "image": {"context_compression": "auto"},
    "background_options": {"completion_window": "2h"},
    "client_metadata": {"a": "b"},
    "background": True,
    "conversation": "conv_1",
    "prompt": {"id": "p"},
    "moderation": {"model": "x"},
    "top_logprobs": 2,
    "stop": "x",
    "top_k": 5,
    "min_p": 0.1,
    "seed": 7,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "cache_salt": "s",
    "timings": False,
}
ITEMS: dict[str, list[dict[str, Any]]] = {
    "message": [{"role": "developer", "content": "x"}],
    "reasoning": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}],
    "function_call": [CALL, {"type": "function_call_output", "call_id": "a", "output": "1"}],
    "function_call_output": [CALL, {"call_id": "a", "output": "2"}],
    "custom_tool_call": [CUSTOM, {"call_id": "a", "output": "1"}],
    "custom_tool_call_output": [
        CUSTOM,
        {"type": "custom_tool_call_output", "call_id": "a", "output": "1"},
    ],
    "additional_tools": [{"type": "additional_tools", "tools": [{**TOOL, "name": "g"}]}],
    "web_search_call": [{"type": "web_search_call"}],
    "input_image": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}],
    "input_file": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}],
    "input_audio": [{"role": "user", "content": [{"type": "input_audio"}]}],
}


def rows(*sections: str) -> dict[str, str]:
    """Field and what becomes of it, of the tables under these headings."""
    found: dict[str, str] = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        if section.splitlines()[0] in sections:
            cells = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
            found |= {cell[1].strip(" `"): cell[2].strip() for cell in cells}
    return found


FIELDS = rows("The request", "Extensions")
KINDS = rows("Items of `input`")


def body(field: str, value: Any) -> dict[str, Any]:
    name, _, inner = field.partition(".")
    return {**BASE, name: {inner: value} if inner else value}


def effect(request_body: dict[str, Any]) -> tuple[Any, Any, Any]:
    """What a request makes of a model's work and of an answer, its own words left out."""
    request = parse(request_body)
    chain = FakeChain() if request.previous_response_id else None
    wanted = dataclasses.replace(ask(request, chain, "c"), arrived=0.0)
    made = Machine(request, FakeAnswer(), now=lambda: 1.0)
    for piece in (thought("Hm"), text("a"), call()):
        made.feed(piece)
    made.finish(turn())
    answer = {n: v for n, v in made.body().items() if n not in _repeated()}
    return wanted, request.stream, answer


def _repeated() -> set[str]:
    return {field for field, said in FIELDS.items() if said == "no effect"} | {"text"}


def test_every_field_has_an_example() -> None:
    assert EXAMPLES.keys() == FIELDS.keys()


def test_every_field_of_the_code_is_documented() -> None:
    nested: dict[str, type[BaseModel]] = {
        "reasoning": Reasoning,
        "text": Text,
        "prompt_cache_options": PromptCacheOptions,
    }
    names = set(ResponsesRequest.model_fields) - nested.keys()
    names |= {f"{outer}.{name}" for outer, model in nested.items() for name in model.model_fields}
    assert names <= FIELDS.keys()


def test_every_field_of_the_sdk_is_documented() -> None:
    documented = {field.partition(".")[0] for field in FIELDS}
    assert set(get_type_hints(ResponseCreateParamsBase)) | {"stream"} <= documented


@pytest.mark.parametrize("field", [f for f, said in FIELDS.items() if said == "honoured"])
def test_what_is_honoured_makes_a_difference(field: str) -> None:
    assert effect(body(field, EXAMPLES[field])) != effect(BASE)


@pytest.mark.parametrize("field", [f for f, said in FIELDS.items() if said == "no effect"])
def test_what_has_no_effect_makes_none(field: str) -> None:
    assert effect(body(field, EXAMPLES[field])) == effect(BASE)


@pytest.mark.parametrize("field", [f for f, said in FIELDS.items() if said == "refused"])
def test_what_is_refused_is_named(field: str) -> None:
    with pytest.raises(WireError) as caught:
        parse(body(field, EXAMPLES[field]))
    assert (caught.value.status, caught.value.param) == (400, field)
    parse(body(field, None))


def test_every_kind_of_item_is_documented() -> None:
    assert set(_KINDS) <= KINDS.keys()
    assert ITEMS.keys() | {"item_reference"} == KINDS.keys()


@pytest.mark.parametrize("kind", ITEMS)
def test_items(kind: str) -> None:
    given = {**BASE, "input": [USER, *ITEMS[kind], USER]}
    if KINDS[kind] == "honoured":
        assert effect(given) != effect({**BASE, "input": [USER, USER]})
    else:
        with pytest.raises(WireError) as caught:
            parse(given)
        assert caught.value.status == 400
