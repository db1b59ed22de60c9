from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from mlxnb.models.gguf.reader import read
from mlxnb.models.gguf.tokenizer import write_tokenizer
from mlxnb.models.load import load_tokenizer
from mlxnb.models.source import ModelSource

from .tiny import CORPUS, TEMPLATE, TEXTS, byte_level, config_of, write_gguf

PRE_TOKENIZERS = ["gpt-2", "smollm", "qwen2", "llama-bpe"]


def imported(folder: Path, original: Tokenizer, pre: str, **extra: Any) -> Any:
    """The tokenizer that transformers loads from an import of ``original``."""
    config = config_of("llama", original.get_vocab_size())
    named = {f"tokenizer.ggml.{key}": value for key, value in extra.items()}
    path = write_gguf(folder / "tiny.gguf", config, {}, original, pre, extra=named)
    made = folder / "made"
    made.mkdir()
    write_tokenizer(read(path), made)
    (made / "config.json").write_text(json.dumps({**config, "eos_token_id": 2}), "utf-8")
    return load_tokenizer(ModelSource("tiny", made))


@pytest.fixture(scope="module", params=PRE_TOKENIZERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    original = byte_level(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    return original, imported(folder, original, request.param)


def ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_the_originals(pair: Any, text: str) -> None:
    original, found = pair
    assert ids(found, text) == original.encode(text, add_special_tokens=False).ids


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_ids_are_the_originals_whatever_the_text(pair: Any, text: str) -> None:
    original, found = pair
    assert ids(found, text) == original.encode(text, add_special_tokens=False).ids


def test_text_comes_back(pair: Any) -> None:
    _, found = pair
    for text in ("  Straße 漢字 1234 don't\n\n\tend ", "\U0001f600"):
        assert found.decode(ids(found, text)) == text


def test_pre_tokenizers_differ_so_that_a_wrong_one_would_show(tmp_path: Path) -> None:
    original = byte_level("qwen2")
    found = imported(tmp_path, original, "gpt-2")
    texts = [text for text in TEXTS if ids(found, text) != original.encode(text).ids]
    assert texts


def test_llama_3_keeps_a_word_whole_that_no_merge_makes(tmp_path: Path) -> None:
    content = json.loads(byte_level("llama-bpe").to_str())
    word = max(content["model"]["vocab"], key=len)
    content["model"]["merges"] = content["model"]["merges"][:20]
    original = Tokenizer.from_str(json.dumps(content))
    found = imported(tmp_path, original, "llama-bpe")
    assert found.convert_ids_to_tokens(ids(found, word.replace("Ġ", " "))) == [word]
    assert ids(found, CORPUS[0]) == original.encode(CORPUS[0]).ids


def test_control_tokens_are_one_id_each(pair: Any) -> None:
    _, found = pair
    assert ids(found, "<|im_start|>user<|im_end|>")[0] == 1
    assert ids(found, "<|im_start|>user<|im_end|>")[-1] == 2


def test_the_template_is_the_files(pair: Any) -> None:
    _, found = pair
    rendered = found.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert found.chat_template == TEMPLATE


def test_end_tokens_are_named_ones_and_well_known_ones(tmp_path: Path) -> None:
    from mlxnb.models.gguf.tokenizer import Vocabulary

    config = config_of("llama", 400)
    path = write_gguf(tmp_path / "tiny.gguf", config, {}, byte_level("smollm"))
    assert Vocabulary(read(path)).ends() == [2, 0]


def test_a_start_token_is_put_where_the_file_asks_for_one(tmp_path: Path) -> None:
    found = imported(tmp_path, byte_level("smollm"), "smollm", add_bos_token=True)
    assert found.encode("hi")[0] == 1
    assert found.encode("hi", add_special_tokens=False)[0] != 1


def test_no_start_token_is_put_where_the_file_asks_for_none(tmp_path: Path) -> None:
    found = imported(tmp_path, byte_level("llama-bpe"), "llama-bpe", add_bos_token=False)
    assert found.encode("hi")[0] != 1


def test_user_defined_tokens_are_whole_and_visible(tmp_path: Path) -> None:
    original = byte_level("qwen2")
    original.add_tokens(["<think>"])
    number = original.token_to_id("<think>")
    types = [3, 3, 3] + [1] * (number - 3) + [4]
    found = imported(tmp_path, original, "qwen2", token_type=types)
    assert ids(found, "a<think>b")[1] == number
    assert found.decode([number], skip_special_tokens=True) == "<think>"


def test_padding_of_the_vocabulary_is_left_out(tmp_path: Path) -> None:
    original = byte_level("qwen2")
    size = original.get_vocab_size()
    original.add_tokens([f"[PAD{size + i}]" for i in range(3)])
    types = [3, 3, 3] + [1] * (size - 3) + [5, 5, 5]
    found = imported(tmp_path, original, "qwen2", token_type=types)
    assert len(found) == size
