"""Tokens that are parts of characters, one by one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mlxnb.sessions.spelled import REST, spelled, whole
from mlxnb.sessions.views import readable

from .tokenizers import wrapped

TEXT = "Say 👋🏽, é and 日本 \ufffd ok"


def joined(texts: list[str]) -> str:
    """The text whose tokens these are."""
    parts = re.split(r"<0x(..)>", "".join(texts))
    halves = [bytes.fromhex(p) if at % 2 else p.encode() for at, p in enumerate(parts)]
    return b"".join(halves).decode()


@pytest.mark.parametrize("kind", ["byte", "llama3", "spm"])
def test_parts_of_characters_are_told_by_their_bytes(kind: str) -> None:
    tokenizer = wrapped(kind)
    tokens = tokenizer.encode(TEXT, add_special_tokens=False)
    decode = readable(tokenizer)
    texts = [decode([token]) for token in tokens]
    assert any("<0xF0>" in text for text in texts)
    # SentencePiece's decoder takes the space away that a word alone begins with
    assert joined(texts).replace(" ", "") == TEXT.replace(" ", "")
    assert decode(tokens).strip() == TEXT


@pytest.mark.parametrize("kind", ["byte", "llama3", "spm"])
def test_characters_are_read_whole(kind: str) -> None:
    tokenizer = wrapped(kind)
    decode = readable(tokenizer)
    texts = [decode([t]) for t in tokenizer.encode(TEXT, add_special_tokens=False)]
    read = whole(texts)
    assert len(read) == len(texts)
    assert not any("<0x" in text for text in read)
    found = "".join(text for text in read if text != REST)
    assert found.replace(" ", "") == TEXT.replace(" ", "")
    assert "👋" in read or " 👋" in read


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (["a<0xE4>", "<0xBD>", "<0xA0>b"], ["a你b", REST, REST]),
        (["<0xE4>", "<0xBD>"], ["<0xE4>", "<0xBD>"]),
        (["<0xE4>", "x", "<0xC3>", "<0xA9>"], ["<0xE4>", "x", "é", REST]),
        (["<0xC3>", "<0xA9><0xC3>", "<0xA9>"], ["éé", REST, REST]),
        ([], []),
    ],
)
def test_what_is_no_whole_character_is_read_as_bytes(texts: list[str], read: list[str]) -> None:
    assert whole(texts) == read


class Nameless:
    def decode(self, tokens: list[int]) -> str:
        return "\ufffd"


class Foreign(Nameless):
    def convert_ids_to_tokens(self, token: int) -> Any:
        return {1: None, 2: "日", 3: "<0xE6>"}[token]


def test_what_no_vocabulary_says_stays_as_it_is_decoded() -> None:
    assert readable(Nameless())([1]) == "\ufffd"
    assert [spelled(Foreign(), token) for token in (1, 2, 3)] == [None, None, "<0xE6>"]
    assert readable(Foreign())([2]) == "\ufffd"
