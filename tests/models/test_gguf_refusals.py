from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from tokenizers import Tokenizer

from mlxnb.errors import MlxnbError, ModelBroken, ModelNotFound, UnsupportedModel
from mlxnb.models.gguf.folder import gguf_folder
from mlxnb.models.gguf.reader import read
from mlxnb.models.resolve import resolve

from .tiny import config_of, random_model, weights_of, write_gguf

pytestmark = pytest.mark.usefixtures("cache")


def write(path: Path, tokenizer: Tokenizer, pre: str = "smollm", **extra: Any) -> Path:
    config = config_of("llama", tokenizer.get_vocab_size())
    named = {key.replace("__", "."): value for key, value in extra.items()}
    weights = weights_of(random_model(config))
    return write_gguf(path, config, weights, tokenizer, pre, extra=named)


def write_foreign(path: Path, architecture: str) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_an_unknown_architecture_is_refused_with_those_known(tmp_path: Path) -> None:
    path = write_foreign(tmp_path / "a.gguf", "mamba")
    with pytest.raises(UnsupportedModel, match=r"mamba is not supported.*llama, qwen2, qwen3"):
        resolve(path, progress=False)


def test_an_unknown_pre_tokenizer_is_refused_with_those_known(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path = write(tmp_path / "a.gguf", tokenizer, pre="viking")
    with pytest.raises(UnsupportedModel, match=r"viking.*llama-bpe.*qwen2.*smollm"):
        resolve(path, progress=False)


def test_no_pre_tokenizer_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.gguf", tokenizer, pre="default")
    with pytest.raises(UnsupportedModel, match="'default'"):
        resolve(path, progress=False)


def test_an_unknown_tokenizer_kind_is_refused_with_those_known(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path = write(tmp_path / "a.gguf", tokenizer, tokenizer__ggml__model="rwkv")
    with pytest.raises(UnsupportedModel, match=r"rwkv.*gpt2.*llama"):
        resolve(path, progress=False)


def test_an_unknown_tensor_type_is_refused_with_those_known(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    data = np.zeros((1, gguf.GGML_QUANT_SIZES[Type.IQ2_XS][1]), np.uint8)
    writer.add_tensor("token_embd.weight", data, raw_dtype=Type.IQ2_XS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match=r"type 17; supported: F32, F16.*Q4_1.*Q8_0"):
        read(tmp_path / "a.gguf")


def test_a_mixture_of_experts_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.gguf", tokenizer, llama__expert_count=8)
    with pytest.raises(UnsupportedModel, match="mixture of experts"):
        resolve(path, progress=False)


def test_a_part_of_a_split_model_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.gguf", tokenizer, split__count=3)
    with pytest.raises(UnsupportedModel, match="one of 3 parts"):
        resolve(path, progress=False)


def test_heads_rotated_in_part_are_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.gguf", tokenizer, llama__rope__dimension_count=8)
    with pytest.raises(UnsupportedModel, match="8 rotated"):
        resolve(path, progress=False)


def test_foreign_rotary_factors_are_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    config = config_of("llama", tokenizer.get_vocab_size())
    weights = {
        **weights_of(random_model(config)),
        "rope_freqs.weight": np.array([1, 2, 3, 1, 5, 6, 7, 8], np.float32),
    }
    path = write_gguf(tmp_path / "a.gguf", config, weights, tokenizer)
    with pytest.raises(UnsupportedModel, match="rotary factors"):
        resolve(path, progress=False)


def test_longrope_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    scaled = {"llama__rope__scaling__type": "longrope", "llama__rope__scaling__factor": 4.0}
    path = write(tmp_path / "a.gguf", tokenizer, **scaled)
    with pytest.raises(UnsupportedModel, match="'longrope'"):
        resolve(path, progress=False)


def test_a_tensor_too_many_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    config = config_of("llama", tokenizer.get_vocab_size())
    weights = weights_of(random_model(config))
    weights["model.layers.0.self_attn.q_norm.weight"] = np.ones(16, np.float32)
    path = write_gguf(tmp_path / "a.gguf", config, weights, tokenizer)
    with pytest.raises(UnsupportedModel, match="attn_q_norm"):
        resolve(path, progress=False)


def test_a_missing_tensor_is_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    config = config_of("llama", tokenizer.get_vocab_size())
    weights = weights_of(random_model(config))
    del weights["model.layers.1.mlp.up_proj.weight"]
    path = write_gguf(tmp_path / "a.gguf", config, weights, tokenizer)
    with pytest.raises(ModelBroken, match=r"blk\.1\.ffn_up\.weight"):
        resolve(path, progress=False)


def test_a_file_without_template_is_a_base_model(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.gguf", tokenizer, tokenizer__chat_template="")
    with pytest.raises(ModelBroken, match="no chat template"):
        resolve(path, progress=False)


def test_a_refused_file_leaves_nothing_in_the_cache(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.gguf", tokenizer, pre="viking")
    with pytest.raises(UnsupportedModel):
        resolve(path, progress=False)
    folder = gguf_folder(path)
    assert [file for file in folder.parent.iterdir() if not file.name.endswith(".lock")] == []


def test_no_such_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="there is no"):
        resolve(tmp_path / "absent.gguf", progress=False)


def test_what_is_no_gguf_is_broken(tmp_path: Path) -> None:
    for content in (b"", b"GGU", b"PK\x03\x04" + b"0" * 100):
        (tmp_path / "a.gguf").write_bytes(content)
        with pytest.raises(ModelBroken):
            read(tmp_path / "a.gguf")


@pytest.mark.parametrize("version", [1, 4, 0x03000000])
def test_other_versions_and_byte_orders_are_refused(tmp_path: Path, version: int) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + version.to_bytes(4, "little") + bytes(100))
    with pytest.raises(UnsupportedModel, match="versions 2 and 3"):
        read(tmp_path / "a.gguf")


def test_a_truncated_file_is_broken_wherever_it_ends(tmp_path: Path, tokenizer: Tokenizer) -> None:
    content = write(tmp_path / "a.gguf", tokenizer).read_bytes()
    cuts = random.Random(0).sample(range(len(content)), 60)
    for cut in [*cuts, len(content) - 1]:
        (tmp_path / "b.gguf").write_bytes(content[:cut])
        with pytest.raises(ModelBroken):
            read(tmp_path / "b.gguf")


def test_altered_bytes_in_the_header_never_raise_anything_else(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    content = bytearray(write(tmp_path / "a.gguf", tokenizer).read_bytes())
    chance = random.Random(0)
    for _ in range(150):
        altered = content.copy()
        for _ in range(3):
            altered[chance.randrange(0, 4000)] = chance.randrange(256)
        (tmp_path / "b.gguf").write_bytes(altered)
        try:
            read(tmp_path / "b.gguf")
        except MlxnbError:
            continue
