"""mlx-lm's own parsers, each on a true sample of its format, piece by piece (W38, C30)."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import mlx_lm.tool_parsers
import pytest

from mlxnb.text.answer import AnswerMachine
from mlxnb.text.tools import GRAMMARS

FIND = {
    "type": "function",
    "function": {
        "name": "find_files",
        "parameters": {
            "type": "object",
            "properties": {"pattern": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["pattern"],
        },
    },
}
STAT = {
    "type": "function",
    "function": {
        "name": "stat",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
ONE = [("find_files", {"pattern": "a b.py", "limit": 3})]
TWO = [*ONE, ("stat", {"path": "/x"})]

INVOKE = (
    '<invoke name="find_files"><parameter name="pattern">a b.py</parameter>'
    '<parameter name="limit">3</parameter></invoke>'
)
ATEM = INVOKE.replace("<", "<atem:").replace("<atem:/", "</atem:")
QWEN = (
    "<function=find_files>\n<parameter=pattern>\na b.py\n</parameter>\n"
    "<parameter=limit>\n3\n</parameter>\n</function>"
)
GLM = (
    "find_files\n<arg_key>pattern</arg_key>\n<arg_value>a b.py</arg_value>\n"
    "<arg_key>limit</arg_key>\n<arg_value>3</arg_value>\n"
)
KIMI_2 = (
    "<|tool_call_begin|>functions.find_files:0<|tool_call_argument_begin|>"
    '{"pattern": "a b.py", "limit": 3}<|tool_call_end|>'
)
KIMI_2_STAT = (
    '<|tool_call_begin|>functions.stat:1<|tool_call_argument_begin|>{"path": "/x"}<|tool_call_end|>'
)
KIMI_3 = (
    '<|open|>call tool="find_files" index="1"<|sep|>'
    '<|open|>argument key="pattern" type="string"<|sep|>a b.py<|close|>argument<|sep|>'
    '<|open|>argument key="limit" type="number"<|sep|>3<|close|>argument<|sep|>'
    "<|close|>call<|sep|>"
)
JSON = '{"name": "find_files", "arguments": {"pattern": "a b.py", "limit": 3}}'
JSON_STAT = '{"name": "stat", "arguments": {"path": "/x"}}'

# parser, body, its calls
SAMPLES = [
    ("function_gemma", "call:find_files{pattern:<escape>a b.py<escape>,limit:3}", ONE),
    ("gemma4", 'call:find_files{limit:3,pattern:<|"|>a b.py<|"|>}', ONE),
    (
        "gemma4",
        'call:find_files{limit:3,pattern:<|"|>a b.py<|"|>}call:stat{path:<|"|>/x<|"|>}',
        TWO,
    ),
    ("glm47", GLM, ONE),
    ("laguna", GLM, ONE),
    ("json_tools", f"\n{JSON}\n", ONE),
    ("json_tools", f"[{JSON}, {JSON_STAT}]", TWO),
    ("kimi_k2", KIMI_2, ONE),
    ("kimi_k2", KIMI_2 + KIMI_2_STAT, TWO),
    ("kimi_k3", KIMI_3, ONE),
    ("longcat", GLM.replace("arg_", "longcat_arg_"), ONE),
    (
        "minicpm5",
        '"find_files"><param name="pattern">a b.py</param><param name="limit">3</param>',
        ONE,
    ),
    ("minimax_m2", f"\n{INVOKE}\n", ONE),
    ("mistral", f"[{JSON}]", ONE),
    ("mistral", f"[{JSON}, {JSON_STAT}]", TWO),
    ("mistral", 'find_files[ARGS]{"pattern": "a b.py", "limit": 3}', ONE),
    ("muse_spark", ATEM, ONE),
    ("pythonic", "[find_files(pattern='a b.py', limit=3)]", ONE),
    ("pythonic", "[find_files(pattern='a b.py', limit=3), stat(path='/x')]", TWO),
    ("qwen3_coder", f"\n{QWEN}\n", ONE),
]
BARE = [
    ("qwen3_coder", QWEN),
    ("minimax_m2", INVOKE),
    ("muse_spark", ATEM),
    ("kimi_k2", KIMI_2),
    ("kimi_k3", KIMI_3),
]


def parser(name: str) -> Any:
    return importlib.import_module(f"mlx_lm.tool_parsers.{name}")


def answer(name: str, raw: str, size: int = 3, tools: Any = (FIND, STAT)) -> AnswerMachine:
    module = parser(name)
    machine = AnswerMachine(
        think=("<think>", "</think>"),
        starts_in_reasoning=False,
        tool_tags=(module.tool_call_start, module.tool_call_end),
        parse_tool=module.parse_tool_call,
        tools=list(tools),
        stops=["never"],
    )
    for at in range(0, len(raw), size):
        machine.feed(raw[at : at + size])
    machine.finish(False)
    return machine


def calls_of(machine: AnswerMachine) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in machine.tool_calls]


def test_every_parser_of_mlx_lm_has_a_sample() -> None:
    modules = {module.name for module in pkgutil.iter_modules(mlx_lm.tool_parsers.__path__)}
    assert {name for name, _, _ in SAMPLES} == modules


def test_every_grammar_is_one_of_a_parser() -> None:
    modules = {module.name for module in pkgutil.iter_modules(mlx_lm.tool_parsers.__path__)}
    assert set(GRAMMARS) <= modules


@pytest.mark.parametrize("size", [1, 4, 10_000])
@pytest.mark.parametrize(("name", "body", "calls"), SAMPLES)
def test_w38_a_true_sample_is_a_call_and_no_text(
    name: str, body: str, calls: list[tuple[str, dict[str, Any]]], size: int
) -> None:
    start, end = parser(name).tool_call_start, parser(name).tool_call_end
    machine = answer(name, f"<think>Files.</think>\n\nLooking.\n{start}{body}{end}", size)
    assert calls_of(machine) == calls
    assert (machine.reasoning, machine.text) == ("Files.", "Looking.\n")


@pytest.mark.parametrize("name", sorted({name for name, _, _ in SAMPLES}))
def test_w38_prose_between_the_tags_is_text(name: str) -> None:
    start, end = parser(name).tool_call_start, parser(name).tool_call_end
    raw = f"The tags are {start} and {end}, see?"
    machine = answer(name, raw)
    assert (calls_of(machine), machine.text) == ([], raw)


@pytest.mark.parametrize(("name", "body", "calls"), SAMPLES)
def test_w37_without_tools_the_body_is_text(
    name: str, body: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    start, end = parser(name).tool_call_start, parser(name).tool_call_end
    machine = answer(name, f"Looking.{start}{body}{end}", tools=())
    assert (calls_of(machine), machine.text) == ([], f"Looking.{body}")
    assert machine.suppressed_markup


@pytest.mark.parametrize(("name", "markup"), BARE)
@pytest.mark.parametrize("stray", [False, True])
def test_c30_a_call_without_its_start_tag_is_a_call(name: str, markup: str, stray: bool) -> None:
    end = f"\n{parser(name).tool_call_end}" if stray else ""
    machine = answer(name, f"Looking.\n{markup}{end}")
    assert (calls_of(machine), machine.text) == (ONE, "Looking.\n")


@pytest.mark.parametrize(("name", "markup"), BARE)
def test_c30_an_undeclared_name_without_a_start_tag_is_text(name: str, markup: str) -> None:
    machine = answer(name, f"Looking.\n{markup}!", tools=[STAT])
    assert (calls_of(machine), machine.text) == ([], f"Looking.\n{markup}!")
