from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import sentencepiece

from mlxnb.errors import ModelBroken
from mlxnb.models.gguf.reader import read
from mlxnb.models.gguf.tokenizer import write_tokenizer
from mlxnb.models.load import load_tokenizer
from mlxnb.models.source import ModelSource

from .tiny import CORPUS, TEMPLATE, config_of

TEXTS = [
    *CORPUS[:2],
    "Hello  world",
    " hello",
    "",
    "ünseen Ω 漢字 \U0001f600",
    "a\n\nb\tc",
    "1,000.5",
]


@pytest.fixture(scope="module")
def original() -> Any:
    """A small BPE model as Llama 2's was trained: digits split, bytes for what is unknown."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 20),
        model_writer=model,
        model_type="bpe",
        vocab_size=400,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def kind_of(original: Any, index: int) -> int:
    if original.is_unknown(index):
        return int(gguf.TokenType.UNKNOWN)
    if original.is_control(index):
        return int(gguf.TokenType.CONTROL)
    return int(gguf.TokenType.BYTE if original.is_byte(index) else gguf.TokenType.NORMAL)


def write(path: Path, original: Any, scores: bool = True) -> Path:
    size = original.get_piece_size()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([original.id_to_piece(i) for i in range(size)])
    writer.add_token_types([kind_of(original, i) for i in range(size)])
    if scores:
        writer.add_token_scores([original.get_score(i) for i in range(size)])
    writer.add_bos_token_id(original.bos_id())
    writer.add_eos_token_id(original.eos_id())
    writer.add_unk_token_id(original.unk_id())
    writer.add_chat_template(TEMPLATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def imported(original: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("spm")
    write_tokenizer(read(write(folder / "tiny.gguf", original)), folder)
    config = config_of("llama", original.get_piece_size())
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return load_tokenizer(ModelSource("tiny", folder))


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_the_originals(original: Any, imported: Any, text: str) -> None:
    assert imported.encode(text, add_special_tokens=False) == original.encode(text)


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(original: Any, imported: Any, text: str) -> None:
    assert imported.decode(original.encode(text)) == text


def test_the_detokenizer_is_sentencepieces(original: Any, imported: Any) -> None:
    text = "The quick ünseen 漢字"
    detokenizer = imported.detokenizer
    for token in original.encode(text):
        detokenizer.add_token(token)
    detokenizer.finalize()
    assert type(detokenizer).__name__ == "SPMStreamingDetokenizer"
    assert detokenizer.text == text


def test_a_prompt_starts_with_the_start_token(original: Any, imported: Any) -> None:
    assert imported.encode("hi")[0] == original.bos_id()


def test_pieces_without_scores_are_broken(original: Any, tmp_path: Path) -> None:
    file = read(write(tmp_path / "tiny.gguf", original, scores=False))
    with pytest.raises(ModelBroken, match="no scores"):
        write_tokenizer(file, tmp_path)
