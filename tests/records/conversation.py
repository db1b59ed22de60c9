"""A word tokenizer and a chat template, so that turns can be written down as messages."""

from __future__ import annotations

import datetime as dt
import re
from array import array
from collections.abc import Sequence
from typing import Any

from mlxnb.records.turn import Span, TurnRecord, Usage

NOON = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)
WORD = re.compile(r"<\|\w+\|>|\w+|\s|[^\w\s]")
Message = tuple[str, str]


class Words:
    """A token is a tag, a word or one other character."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [self.ids.setdefault(word, 100 + len(self.ids)) for word in WORD.findall(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        words = {token: word for word, token in self.ids.items()}
        return "".join(words[token] for token in tokens)


WORDS = Words()


def encoded(messages: Sequence[Message], head: str = "") -> tuple[array[int], list[Span]]:
    """The prompt: ``head``, each message between tags, and the tag of the answer."""
    prompt: array[int] = array("I")
    spans: list[Span] = []

    def append(text: str, role: str, message: int) -> None:
        start = len(prompt)
        prompt.extend(WORDS.encode(text))
        if len(prompt) > start:
            spans.append(Span(start, len(prompt), role, message))

    before = head
    for number, (role, text) in enumerate(messages):
        append(f"{before}<|{role}|>\n", "template", number)
        append(text, role, number)
        before = "<|end|>\n"
    append(f"{before}<|assistant|>\n", "template", len(messages))
    return prompt, spans


def turn(
    number: int,
    *messages: Message,
    answer: str = "All right.",
    cached: int = 0,
    head: str = "",
    **options: Any,
) -> TurnRecord:
    """A finished turn, filed by a model named ``demo`` in no session."""
    prompt, spans = encoded(messages, head)
    output = array("I", WORDS.encode(answer + "<|end|>"))
    values: dict[str, Any] = {
        "session": None,
        "model": "demo",
        "source": "python",
        "host": "kernel",
        "started_at": NOON + dt.timedelta(seconds=number),
        "fingerprint": "weights",
        "finish_reason": "stop",
        "usage": Usage(len(prompt), cached, len(output)),
        "prompt": prompt,
        "output": output,
        "spans": spans,
    }
    return TurnRecord(turn_id=f"t{number}", **(values | options))


def common(record: TurnRecord, other: TurnRecord) -> int:
    """Tokens that a prompt and another turn's prompt and output begin with, the slow way."""
    theirs = [*other.prompt, *other.output]
    count = 0
    while count < min(len(record.prompt), len(theirs)) and record.prompt[count] == theirs[count]:
        count += 1
    return count


def warm(record: TurnRecord, *others: TurnRecord) -> TurnRecord:
    """The turn as it is with a cache that forgets nothing of the others."""
    reused = max(
        min(common(record, o), len(record.prompt) - 1, len(o.prompt) + len(o.output) - 1)
        for o in others
    )
    record.usage = Usage(len(record.prompt), reused, len(record.output))
    return record
