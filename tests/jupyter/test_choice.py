"""W61: which host a request goes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from mlxnb.jupyter.choice import Wish, choose, resolve
from mlxnb.link.process import Process
from mlxnb.link.record import HostRecord

PROCESS = Process(1, "1", "boot", "ns", "machine")


def host(letter: str, *models: str) -> HostRecord:
    return HostRecord(letter, letter * 8, "kernel", "s", None, "x", PROCESS, models=models)


A, B, C = host("a", "demo"), host("b", "demo"), host("c", "other")
ALL = [C, B, A]


def test_a_host_is_asked_for_what_it_has_alone() -> None:
    assert choose(Wish("other"), ALL, "other") == C
    assert choose(Wish("none"), ALL, "none") is None
    assert choose(Wish(), [], None) is None


def test_without_anything_to_go_by_the_newest_is_asked() -> None:
    assert choose(Wish("demo"), ALL, "demo") == B
    assert choose(Wish(), ALL, None) == C


@pytest.mark.parametrize(
    "body",
    [
        {"previous_response_id": "resp_aaaaaaaa_1"},
        {"prompt_cache_options": {"comparison_response_id": "resp_aaaaaaaa_1"}},
        {"diagnostics": {"previous_message_id": "msg_aaaaaaaa_1"}},
    ],
)
def test_the_host_of_an_earlier_response_comes_first(body: dict[str, Any]) -> None:
    body |= {"model": "demo", "prompt_cache_key": "key", "instructions": "text"}
    assert choose(Wish.of(body), ALL, "demo") == A
    # whatever the key would have chosen
    for number in range(20):
        assert choose(Wish.of(body | {"prompt_cache_key": f"key {number}"}), ALL, "demo") == A


def test_a_chain_survives_its_host() -> None:
    wish = Wish.of({"previous_response_id": "resp_zzzzzzzz_1"})
    assert choose(wish, ALL, "demo") == B
    named_but_without_the_model = Wish.of({"previous_response_id": "resp_cccccccc_1"})
    assert choose(named_but_without_the_model, ALL, "demo") == B


def test_requests_with_one_key_go_to_one_host_and_keys_spread() -> None:
    wishes = [Wish("demo", key=f"key {number}", system=str(number)) for number in range(200)]
    chosen = [choose(wish, ALL, "demo") for wish in wishes]
    assert chosen == [choose(replace(w, system="x"), ALL[::-1], "demo") for w in wishes]
    counts = Counter(one.id for one in chosen if one)
    assert set(counts) == {A.id, B.id} and min(counts.values()) > 60


def test_without_a_key_the_system_text_decides() -> None:
    wishes = [Wish("demo", system=f"text {number}") for number in range(50)]
    chosen = [choose(wish, ALL, "demo") for wish in wishes]
    assert chosen == [choose(wish, ALL[::-1], "demo") for wish in wishes]
    assert {one.id for one in chosen if one} == {A.id, B.id}


def test_when_a_host_goes_only_its_own_requests_move() -> None:
    hosts = [A, B, host("d", "demo")]
    for number in range(100):
        wish = Wish("demo", key=str(number))
        before, after = choose(wish, hosts, "demo"), choose(wish, hosts[:2], "demo")
        assert after == before or before == hosts[2]


TEXT = "You are a helpful assistant."


@pytest.mark.parametrize(
    "body",
    [
        {"system": TEXT},
        {"system": [{"type": "text", "text": TEXT, "cache_control": {"type": "ephemeral"}}]},
        {"system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"text": TEXT}]},
        {"instructions": TEXT, "input": "hello"},
        {"input": [{"role": "developer", "content": TEXT}, {"role": "user", "content": "a"}]},
        {"input": [{"role": "system", "content": [{"type": "input_text", "text": TEXT}]}]},
        {"messages": [{"role": "system", "content": TEXT}]},
    ],
)
def test_the_system_text_is_found_in_every_protocol(body: dict[str, Any]) -> None:
    assert Wish.of(body).system == TEXT


def test_c27_a_billing_line_that_changes_moves_nothing() -> None:
    texts = [f"x-anthropic-billing-header: {n}" for n in (1, 2)]
    assert [Wish.of({"system": text}).system for text in texts] == [None, None]


FIELDS = """model previous_response_id prompt_cache_key prompt_cache_options diagnostics
system instructions input messages"""


@pytest.mark.parametrize("bad", [None, 1, [], {}, [1], [None], {"a": 1}, True, [[[]]], "\ud800"])
@pytest.mark.parametrize("field", FIELDS.split())
def test_what_is_malformed_decides_nothing_and_breaks_nothing(field: str, bad: Any) -> None:
    wish = Wish.of({field: bad})
    assert choose(wish, ALL, None) in ALL


def test_an_alias_is_a_name_or_a_glob_and_the_first_counts() -> None:
    aliases = {"claude-*": "demo", "claude-exact": "other", "gpt-?": "third"}
    assert resolve("claude-3", aliases) == "demo"
    assert resolve("claude-exact", aliases) == "other"
    assert resolve("gpt-55", aliases) == "gpt-55"
    assert resolve("demo", aliases) == "demo"
