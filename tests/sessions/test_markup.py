"""Users' text makes no special tokens, wherever it stands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from models.tiny import byte_level
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from mlxnb.sessions.markup import Markup, choose_mark
from mlxnb.sessions.template import ChatTemplate

from .templates import SPECIAL, TAGS
from .texts import NASTY, ODD, texts
from .tokenizers import KINDS, backend, wrapped

MARK = "\ue123"


def special_ids(kind: str) -> set[int]:
    return {backend(kind).token_to_id(text) for text in [*SPECIAL, *TAGS]}


def guarded(text: str, strings: list[str]) -> str:
    tokenizer = byte_level("gpt-2")
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in strings])
    guard = Markup(PreTrainedTokenizerFast(tokenizer_object=tokenizer)).guard
    found = guard(text, MARK)
    assert isinstance(found, str)
    return found


# --- the mark ---------------------------------------------------------------------------------


@given(texts)
def test_a_mark_is_nowhere_in_the_text(text: str) -> None:
    mark = choose_mark(text)
    assert len(mark) == 1
    assert mark not in text


def test_a_mark_is_nowhere_in_keys_and_nested_values_either() -> None:
    first, second, third = (chr(0x10FFFD - n) for n in range(3))
    value = [{"role": "user", "content": None}, ({first: [1, {"x": second}]},)]
    assert choose_mark(value) == third


def test_a_text_of_all_private_characters_has_a_mark_too() -> None:
    text = "".join(map(chr, range(0xE000, 0xF900))) + "".join(map(chr, range(0xF0000, 0x10FFFE)))
    assert choose_mark(text) not in text


# --- what is guarded --------------------------------------------------------------------------


def test_a_mark_parts_the_first_character_from_the_rest() -> None:
    assert guarded("a<|im_end|>b", ["<|im_end|>"]) == f"a<{MARK}|im_end|>b"


def test_special_strings_that_overlap_are_all_parted() -> None:
    assert guarded("<|ab|>c|>", ["<|ab|>", "|>c|>"]) == f"<{MARK}|ab|{MARK}>c|>"


def test_one_special_string_inside_of_another_is_parted_too() -> None:
    assert guarded("<|x<|y|>z|>", ["<|x<|y|>z|>", "<|y|>"]) == f"<{MARK}|x<{MARK}|y|>z|>"


def test_text_without_special_strings_stays() -> None:
    assert guarded("a < b | c > d <|im_en", ["<|im_end|>"]) == "a < b | c > d <|im_en"


def test_keys_are_guarded_and_what_is_no_text_stays() -> None:
    guard = Markup(wrapped("byte")).guard
    tool = {"name": "f", "properties": {"<|im_end|>": [1, None, True, "</s>"]}}
    expected = {"name": "f", "properties": {f"<{MARK}|im_end|>": [1, None, True, f"<{MARK}/s>"]}}
    assert guard(tool, MARK) == expected


@pytest.mark.parametrize("word", ["<table>", "</td>", "<h1>", "<b>"])
def test_html_in_a_vocabulary_is_plain_text(word: str) -> None:
    tokenizer = byte_level("gpt-2")
    tokenizer.add_tokens([AddedToken(word, normalized=False)])
    guard = Markup(PreTrainedTokenizerFast(tokenizer_object=tokenizer)).guard
    assert guard(f"x{word}y", MARK) == f"x{word}y"


def test_a_tag_that_is_no_control_token_is_guarded() -> None:
    tokenizer = byte_level("gpt-2")
    tokenizer.add_tokens([AddedToken("<observe>", normalized=False), "   "])
    guard = Markup(PreTrainedTokenizerFast(tokenizer_object=tokenizer)).guard
    assert guard("a   <observe>", MARK) == f"a   <{MARK}observe>"


def test_a_tokenizer_without_special_tokens_guards_nothing() -> None:
    assert Markup(object()).guard("<|im_end|>", MARK) == "<|im_end|>"


# --- encoded ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_text_is_encoded_to_itself_and_to_no_special_token(kind: str, text: str) -> None:
    tokens = ChatTemplate(wrapped(kind)).literal(text)
    assert not special_ids(kind) & set(tokens)
    assert after_something(kind, tokens) == normalized(kind, text)


def after_something(kind: str, tokens: list[int]) -> str:
    """The text of tokens that do not come first (a decoder strips a leading space)."""
    before = backend(kind).encode("x", add_special_tokens=False).ids
    return str(backend(kind).decode([*before, *tokens], skip_special_tokens=False)).removeprefix(
        "x"
    )


def normalized(kind: str, text: str) -> str:
    """The text as a tokenizer takes it: Qwen's composes accents, Llama 2's spaces are ``▁``."""
    normalizer = backend(kind).normalizer if kind == "qwen" else None
    text = normalizer.normalize_str(text) if normalizer is not None else text
    return text.replace("\u2581", " ") if kind.startswith("spm") else text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*NASTY, *ODD])
def test_a_message_adds_no_special_token_whatever_its_role(kind: str, text: str) -> None:
    template = ChatTemplate(wrapped(kind, "qwen25"))
    assert count(kind, template, text) == count(kind, template, "harmless")


def count(kind: str, template: ChatTemplate, text: str) -> list[int]:
    """The special tokens of a conversation that says ``text`` everywhere, in order."""
    call = {"id": "1", "function": {"name": text, "arguments": {text: text}}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": text},
        {"role": "user", "content": text},
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "content": text},
        {"role": "user", "content": text},
    ]
    tokens = template.conversation(messages, [{"name": text, text: [text]}]).tokens
    return [token for token in tokens if token in special_ids(kind)]
