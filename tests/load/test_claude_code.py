"""A conversation as Claude Code has it: each request sends all of it, and what is new is computed.

``claude_code.json`` has the fields, the blocks and the order of what that client was seen to send
(`clients.by_hand`), with words of our own.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from host.world import World
from scripted import END, QWEN
from sessions.serving.world import KEEPING

RECORDED = json.loads((Path(__file__).parent / "claude_code.json").read_text("utf-8"))
THOUGHT = "<think>\nWhat would help now?\n</think>\n\n"
MOST = 1.02
"""Tokens that are computed, for each that is new."""


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


ANSWERS = [
    call("Bash", command="ls"),
    "I read both.\n"
    + call("Read", file_path="herons.txt")
    + "\n"
    + call("Read", file_path="swifts.txt"),
    "A heron; the other file is gone.",
    call("Edit", file_path="herons.txt", old_string="A", new_string="One"),
    "It is written down.",
]


class ClaudeCode:
    """Sends what was recorded, with the answers that it got between."""

    def __init__(self, world: World) -> None:
        self._client = world.anthropic()
        self._messages: list[Any] = []
        self._sent = 0

    def run(self) -> None:
        for said in copy.deepcopy(RECORDED["said"]):
            self._messages += self._referring(said)
            answer = self._ask()
            self._messages.append({"role": "assistant", "content": answer})

    def _referring(self, said: list[Any]) -> list[Any]:
        """The results with the ids of the calls that they are of."""
        before = self._messages[-1]["content"] if self._messages else []
        calls = iter([block["id"] for block in before if block["type"] == "tool_use"])
        for message in said:
            for block in message["content"]:
                if isinstance(block, dict) and block["type"] == "tool_result":
                    block["tool_use_id"] = next(calls)
        assert next(calls, None) is None, "a call was left without its result"
        return said

    def _ask(self) -> list[Any]:
        self._sent += 1
        system = copy.deepcopy(RECORDED["system"])
        system[0]["text"] = system[0]["text"].replace("CHANGES", f"{self._sent:05x}")
        body = {"system": system, "tools": RECORDED["tools"], "messages": self._marked()}
        fields = RECORDED["fields"] | body | {"stream": True}
        request = {"model": "claude-opus-4-8", "max_tokens": 1, "messages": []}
        with self._client.messages.stream(**request, extra_body=fields) as stream:
            message = stream.get_final_message()
        return [block.model_dump(exclude_none=True) for block in message.content]

    def _marked(self) -> list[Any]:
        """The messages, with a mark on the newest block that a user sent, which moves along."""
        messages = copy.deepcopy(self._messages)
        newest = next(m for m in reversed(messages) if m["role"] == "user")
        newest["content"][-1]["cache_control"] = {"type": "ephemeral"}
        return messages


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """Start a host whose model gives these answers."""
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    worlds = []

    def start(*answers: str, **options: Any) -> World:
        options.setdefault("max_position_embeddings", 2**17)
        worlds.append(World.saying(tmp_path, *answers, **options))
        return worlds[-1]

    yield start
    for world in worlds:
        world.close()


@pytest.mark.parametrize(
    ("thought", "template"), [("", QWEN), (THOUGHT, KEEPING)], ids=["plain", "thinking"]
)
def test_five_turns_compute_what_is_new(
    say: Callable[..., World], thought: str, template: str
) -> None:  # W17, W18, C27
    world = say(*(f"{thought}{answer}{END}" for answer in ANSWERS), template=template)
    ClaudeCode(world).run()
    used = [row.usage for row in world.engine.ledger.rows()]
    whole = [usage.prompt_tokens + usage.output_tokens for usage in used]
    new = [now.prompt_tokens - before for now, before in zip(used[1:], whole, strict=False)]
    computed = [usage.prompt_tokens - usage.cached_tokens for usage in used[1:]]
    assert len(new) == 4
    assert min(new) > 0
    assert sum(computed) <= MOST * sum(new)
    reasons = [row.finish_reason for row in world.engine.ledger.rows()]
    assert reasons == ["tool_calls", "tool_calls", "stop", "tool_calls", "stop"]
