from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from tokenizers import Tokenizer

from mlxnb.errors import InvalidOption, ModelNotFound
from mlxnb.models.discover import discover
from mlxnb.models.fingerprint import fingerprint
from mlxnb.models.generation import generation_defaults
from mlxnb.models.info import ModelInfo, describe
from mlxnb.models.manage import pull, remove
from mlxnb.models.resolve import resolve

from .tiny import config_of, random_model, save_folder, weights_of, write_gguf

pytestmark = pytest.mark.usefixtures("cache", "hub_cache")


@pytest.fixture
def config(tokenizer: Tokenizer) -> dict[str, Any]:
    return config_of("llama", tokenizer.get_vocab_size())


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer, config: dict[str, Any]) -> Path:
    return save_folder(tmp_path / "model", config, tokenizer)


@pytest.fixture
def gguf_file(tmp_path: Path, tokenizer: Tokenizer, config: dict[str, Any]) -> Path:
    return write_gguf(tmp_path / "m.gguf", config, weights_of(random_model(config)), tokenizer)


# --- facts ------------------------------------------------------------------------------------


def test_facts_of_a_float_model(folder: Path, config: dict[str, Any]) -> None:
    info = describe(resolve(folder))
    size = sum(p.size for _, p in tree_flatten(random_model(config).parameters()))
    assert info == ModelInfo(
        name=str(folder),
        path=folder,
        family="llama",
        parameters=size,
        quantization="float32",
        context_length=512,
        bytes=4 * size,
        fingerprint=info.fingerprint,
    )


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"group_size": 32, "bits": 4, "mode": "affine"}, "4-bit g32"),
        ({"group_size": 64, "bits": 8, "mode": "affine"}, "8-bit g64"),
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, "mxfp4"),
    ],
)
def test_packed_parameters_are_counted_singly(
    settings: dict[str, Any], name: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    config = config_of("llama", tokenizer.get_vocab_size(), intermediate_size=128)
    model = random_model(config)
    size = sum(p.size for _, p in tree_flatten(model.parameters()))
    nn.quantize(model, **settings)
    packed = save_folder(tmp_path / "q", {**config, "quantization": settings}, tokenizer, model)
    info = describe(resolve(packed))
    assert (info.parameters, info.quantization) == (size, name)


def test_a_gguf_is_described_like_its_source(gguf_file: Path, folder: Path) -> None:
    found, wanted = describe(resolve(gguf_file, progress=False)), describe(resolve(folder))
    assert (found.parameters, found.context_length) == (wanted.parameters, wanted.context_length)
    assert found.name == str(gguf_file)


# --- fingerprint ------------------------------------------------------------------------------


def test_a_fingerprint_is_16_hex_digits_and_stays(folder: Path) -> None:
    found = fingerprint(resolve(folder))
    assert len(found) == 16
    assert int(found, 16) >= 0
    assert found == fingerprint(resolve(folder))


def test_where_a_model_lies_makes_no_difference(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    assert fingerprint(resolve(tmp_path / "copy")) == fingerprint(resolve(folder))


def test_an_edited_config_changes_it(folder: Path) -> None:
    before = fingerprint(resolve(folder))
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "rope_theta": 20000.0}))
    assert fingerprint(resolve(folder)) != before


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_another_tokenizer_or_template_changes_it(folder: Path, name: str) -> None:
    before = fingerprint(resolve(folder))
    path = folder / name
    path.write_text(
        path.read_text("utf-8").replace("assistant", "model").replace('"id": 1', '"id": 3')
    )
    assert fingerprint(resolve(folder)) != before


def test_other_weights_of_the_same_shapes_change_it(folder: Path, config: dict[str, Any]) -> None:
    before = fingerprint(resolve(folder))
    weights = dict(tree_flatten(random_model(config).parameters()))
    for name in ("model.layers.1.mlp.up_proj.weight", "model.norm.weight"):
        changed = {**weights, name: weights[name] + 1e-3}
        mx.save_safetensors(str(folder / "model.safetensors"), changed, metadata={"format": "mlx"})
        assert fingerprint(resolve(folder)) != before


# --- discovery --------------------------------------------------------------------------------


def test_the_demo_model_is_listed_before_it_is_fetched() -> None:
    assert discover() == [ModelInfo("demo")]


def test_imports_are_listed_by_the_files_path(gguf_file: Path) -> None:
    resolve(gguf_file, progress=False)
    assert [info.name for info in discover()] == ["demo", str(gguf_file)]


def test_a_damaged_import_is_not_listed(gguf_file: Path) -> None:
    weights = resolve(gguf_file, progress=False).path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert [info.name for info in discover()] == ["demo"]


def cached_in_hub(hub_cache: Path, folder: Path, name: str) -> Path:
    repository = hub_cache / ("models--" + name.replace("/", "--"))
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    shutil.copytree(folder, repository / "snapshots" / "abc")
    return repository / "snapshots" / "abc"


def test_chat_models_of_the_hub_cache_are_listed_and_others_not(
    hub_cache: Path, folder: Path
) -> None:
    cached_in_hub(hub_cache, folder, "org/chat")
    (cached_in_hub(hub_cache, folder, "org/base") / "tokenizer_config.json").write_text("{}")
    (cached_in_hub(hub_cache, folder, "org/data") / "config.json").unlink()
    assert [info.name for info in discover()] == ["demo", "org/chat"]


# --- sampling ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.05},
            {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.05},
        ),
        (
            {"do_sample": True, "repetition_penalty": 1.1, "eos_token_id": 2, "top_k": None},
            {"temperature": 1.0, "repetition_penalty": 1.1},
        ),
        ({"do_sample": False, "temperature": 0.6}, {}),
        ({"temperature": 0.6}, {}),
        ([], {}),
    ],
)
def test_sampling_is_the_makers_if_they_say_so(folder: Path, content: Any, wanted: Any) -> None:
    (folder / "generation_config.json").write_text(json.dumps(content))
    assert generation_defaults(resolve(folder)) == wanted


@pytest.mark.parametrize("content", [None, "{"])
def test_without_a_readable_generation_config_nothing_is_said(
    folder: Path, content: str | None
) -> None:
    if content is not None:
        (folder / "generation_config.json").write_text(content)
    assert generation_defaults(resolve(folder)) == {}


# --- pull and rm ------------------------------------------------------------------------------


def test_pulling_a_gguf_imports_it(gguf_file: Path) -> None:
    assert pull(str(gguf_file), progress=False).path.is_dir()


def test_removing_a_gguf_keeps_the_users_file(gguf_file: Path) -> None:
    folder = pull(str(gguf_file), progress=False).path
    size = (folder / "model.safetensors").stat().st_size
    assert remove(str(gguf_file)) >= size
    assert gguf_file.is_file()
    assert not folder.exists()
    assert list(folder.parent.iterdir()) == []
    with pytest.raises(ModelNotFound, match="nothing to delete"):
        remove(str(gguf_file))


def test_an_import_outlives_its_file_and_can_be_removed(gguf_file: Path) -> None:
    folder = pull(str(gguf_file), progress=False).path
    gguf_file.unlink()
    remove(str(gguf_file))
    assert not folder.exists()


def test_removing_a_folder_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidOption, match="yours"):
        remove(str(folder))
    assert folder.is_dir()


@pytest.mark.parametrize("name", ["no-such", "org/none", "../hub", "demo"])
def test_removing_what_is_not_there_is_an_error(name: str) -> None:
    with pytest.raises((ModelNotFound, InvalidOption)):
        remove(name)


def test_describing_reads_no_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "load", None)
    monkeypatch.setattr(np, "fromfile", None)
    assert describe(resolve(folder)).fingerprint
