from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from tokenizers import Tokenizer

from mlxnb.errors import InvalidOption, ModelBroken, ModelNotFound, UnsupportedModel
from mlxnb.models.gguf.folder import gguf_folder
from mlxnb.models.resolve import canonical_name, resolve

from .tiny import TEMPLATE, config_of, random_model, save_folder, weights_of, write_gguf

pytestmark = pytest.mark.usefixtures("cache", "hub_cache")


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return save_folder(
        tmp_path / "model", config_of("llama", tokenizer.get_vocab_size()), tokenizer
    )


@pytest.fixture
def file(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    config = config_of("llama", tokenizer.get_vocab_size())
    return write_gguf(tmp_path / "m.gguf", config, weights_of(random_model(config)), tokenizer)


# --- names ------------------------------------------------------------------------------------


def test_a_folders_path_is_its_name(folder: Path) -> None:
    source = resolve(str(folder))
    assert (source.name, source.path, source.kind) == (str(folder), folder, "mlx")


def test_a_path_has_one_name_however_it_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    spellings = [
        "model",
        "./model",
        "~/model",
        f"{folder}/",
        folder,
        "../" + folder.parent.name + "/model",
    ]
    assert {canonical_name(name) for name in spellings} == {str(folder)}


def test_demo_is_the_demo_model_even_beside_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert canonical_name("demo") == "demo"
    assert canonical_name("./demo") == str(tmp_path / "demo")


@pytest.mark.parametrize("name", ["demmo", "dem", "/no/such/demo", "./demo2", "x.gguf", "a/b/c"])
def test_an_unknown_name_is_not_found(name: str) -> None:
    with pytest.raises(ModelNotFound, match="there is no model"):
        resolve(name)


def test_near_names_are_listed() -> None:
    with pytest.raises(ModelNotFound, match="near names: demo"):
        resolve("dmeo")


def test_a_file_that_is_no_gguf_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(ModelNotFound, match=r"a folder or a \.gguf file"):
        resolve(tmp_path / "weights.bin")


# --- what a folder needs ----------------------------------------------------------------------


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text("utf-8"))
    content.update(changes)
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}), "utf-8")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json"),
        (lambda f: edit(f / "config.json", model_type=None), "model_type"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda f: os.truncate(f / "model.safetensors", 5000), "model.safetensors is truncated"),
        (lambda f: os.truncate(f / "model.safetensors", 4), "model.safetensors is truncated"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda f: edit(f / "tokenizer_config.json", chat_template=None), "no chat template"),
    ],
)
def test_what_is_missing_or_damaged_is_named(
    folder: Path, damage: Callable[[Path], None], named: str
) -> None:
    damage(folder)
    with pytest.raises(ModelBroken, match=named):
        resolve(folder)


def test_a_missing_shard_of_the_index_is_named(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelBroken, match="model-00002-of-00002"):
        resolve(folder)


def test_a_missing_shard_without_an_index_is_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00003.safetensors")
    with pytest.raises(ModelBroken, match="model-00002-of-00003"):
        resolve(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("chat_template.jinja", TEMPLATE),
        ("chat_template.json", json.dumps({"chat_template": TEMPLATE})),
    ],
)
def test_a_template_may_stand_in_a_file_of_its_own(folder: Path, name: str, content: str) -> None:
    from mlxnb.models.load import load_tokenizer

    edit(folder / "tokenizer_config.json", chat_template=None)
    (folder / name).write_text(content)
    tokenizer = load_tokenizer(resolve(folder))
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.has_chat_template
    assert "<|im_start|>user\nhi" in tokenizer.apply_chat_template(messages, tokenize=False)


def test_a_template_may_be_one_of_mlx_lms_own(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", chat_template=None, chat_template_type="deepseek_v32")
    assert resolve(folder).path == folder
    edit(folder / "tokenizer_config.json", chat_template_type="no_such_template")
    with pytest.raises(ModelBroken, match="no chat template"):
        resolve(folder)


def test_a_model_that_needs_its_own_code_is_refused(folder: Path) -> None:
    edit(folder / "config.json", model_file="model.py")
    with pytest.raises(UnsupportedModel, match=r"model\.py"):
        resolve(folder)
    assert resolve(folder, trust_model_code=True).trust_model_code


# --- adapters ---------------------------------------------------------------------------------


def test_an_adapter_is_part_of_the_source(folder: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    mx.save_safetensors(str(adapter / "adapters.safetensors"), {"a": mx.ones(2)})
    assert resolve(folder, adapter=str(adapter)).adapter == adapter


@pytest.mark.parametrize("name", ["adapter_config.json", "adapters.safetensors"])
def test_an_incomplete_adapter_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    mx.save_safetensors(str(adapter / "adapters.safetensors"), {"a": mx.ones(2)})
    (adapter / name).unlink()
    with pytest.raises(ModelBroken, match=name):
        resolve(folder, adapter=adapter)


# --- GGUF files -------------------------------------------------------------------------------


def test_a_gguf_goes_by_its_path_and_is_imported_once(file: Path) -> None:
    source = resolve(file, progress=False)
    assert (source.name, source.kind, source.path) == (str(file), "gguf", gguf_folder(file))
    made = (source.path / "model.safetensors").stat().st_ino
    assert resolve(str(file), progress=False) == source
    assert (source.path / "model.safetensors").stat().st_ino == made


def test_a_changed_gguf_is_imported_again(file: Path, tokenizer: Tokenizer) -> None:
    first = resolve(file, progress=False)
    before = mx.load(str(first.path / "model.safetensors"))
    config = config_of("llama", tokenizer.get_vocab_size())
    model = random_model(config, seed=7)
    write_gguf(file, config, weights_of(model), tokenizer)
    second = resolve(file, progress=False)
    after = mx.load(str(second.path / "model.safetensors"))
    name = "model.layers.1.mlp.up_proj.weight"
    assert second == first
    assert not mx.array_equal(before[name], after[name])
    assert mx.array_equal(after[name], dict(tree_flatten(model.parameters()))[name])


def test_a_damaged_import_is_made_again(file: Path) -> None:
    weights = resolve(file, progress=False).path / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    resolve(file, progress=False)
    assert weights.read_bytes() == content


def test_two_files_of_one_name_do_not_share_an_import(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / file.name
    other.parent.mkdir()
    other.write_bytes(file.read_bytes())
    assert resolve(file, progress=False).path != resolve(other, progress=False).path


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "the name of a model is empty"),
        ("x" * 5000, "the model '" + "x" * 60 + "…': File name too long"),
    ],
)
def test_what_can_be_no_name_is_refused(name: str, told: str) -> None:
    for use in (canonical_name, resolve):
        with pytest.raises(InvalidOption) as raised:
            use(name)
        assert str(raised.value).startswith(told)
