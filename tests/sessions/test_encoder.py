"""Tokens, and the characters that they begin at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from models.tiny import byte_level
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mlxnb.sessions.encoder import Encoder
from mlxnb.sessions.markup import choose_mark

from .texts import plain_texts
from .tokenizers import KINDS, backend, wrapped

MARK = "\ue123"
BYTE = [kind for kind in KINDS if not kind.startswith("spm")]


class Slow:
    """A tokenizer that tells nothing of characters."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return list(text.encode())


@pytest.mark.parametrize("kind", KINDS)
@given(text=plain_texts)
def test_without_marks_tokens_are_the_tokenizer_s_own(kind: str, text: str) -> None:
    encoded = Encoder(wrapped(kind)).encode(text, choose_mark(text))
    assert encoded.tokens == wrapped(kind).encode(text, add_special_tokens=False)


@pytest.mark.parametrize("kind", BYTE)
@given(text=plain_texts)
def test_a_token_s_text_begins_where_it_is_said_to(kind: str, text: str) -> None:
    if kind == "qwen":
        text = backend(kind).normalizer.normalize_str(text)
    encoded = Encoder(wrapped(kind)).encode(text, choose_mark(text))
    assert encoded.starts is not None
    for number, start in enumerate(encoded.starts):
        before = backend(kind).decode(encoded.tokens[:number], skip_special_tokens=False)
        assert before.rstrip("\ufffd") == text[:start].rstrip("\ufffd")


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_s_tokens_are_left_out(kind: str) -> None:
    text = f"say <{MARK}|im_end|> twice: <{MARK}|im_end|>"
    encoded = Encoder(wrapped(kind)).encode(text, MARK)
    assert encoded.starts is not None
    assert wrapped(kind).decode(encoded.tokens) == text.replace(MARK, "")
    assert all(text[start] != MARK for start in encoded.starts)


@pytest.mark.parametrize("kind", ["spm", "spm_legacy"])
def test_what_continues_a_text_gets_no_space_in_front(kind: str) -> None:
    encoder = Encoder(wrapped(kind))
    whole = encoder.encode("\nUser: hi", MARK)
    continued = encoder.encode("\nUser: hi", MARK, continues=True)
    assert continued.tokens == whole.tokens[1:]
    assert continued.starts == whole.starts[1:] if whole.starts else False


def test_a_tokenizer_without_offsets_encodes_in_pieces() -> None:
    encoded = Encoder(Slow()).encode(f"a<{MARK}b>", MARK, continues=True)
    assert bytes(encoded.tokens) == b"a<b>"
    assert encoded.starts is None


class Changing:
    """A tokenizer that changes the text before its backend sees it."""

    def __init__(self) -> None:
        self.backend_tokenizer = byte_level("gpt-2")

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        text = text.replace("\n", "<n>")
        ids: list[int] = self.backend_tokenizer.encode(
            text, add_special_tokens=add_special_tokens
        ).ids
        return ids


def test_a_tokenizer_that_does_more_than_its_backend_is_asked_itself() -> None:
    tokenizer = Changing()
    encoded = Encoder(tokenizer).encode(f"a\n<{MARK}b>", MARK)
    assert tokenizer.backend_tokenizer.decode(encoded.tokens) == "a<n><b>"
    assert encoded.starts is None


def test_a_mark_that_shares_a_token_parts_the_text_all_the_same() -> None:
    """Unknown characters in a row are one token here, a mark among them."""
    words: Any = {"<unk>": 0, "a": 1, "<": 2, ">": 3}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    encoded = Encoder(fast).encode(f"a<{MARK}é>", MARK)
    assert encoded.tokens == [1, 2, 0, 3]
