from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from tokenizers import Tokenizer

from mlxnb import container
from mlxnb.errors import ModelBroken, NotEnoughMemory, UnsupportedModel
from mlxnb.models import memory
from mlxnb.models.load import build, load_tokenizer
from mlxnb.models.memory import check_memory, estimate_bytes
from mlxnb.models.resolve import resolve
from mlxnb.models.source import ModelSource

from .tiny import config_of, random_model, save_folder, weights_of

pytestmark = pytest.mark.usefixtures("cache")

TOKENS = mx.array([[1, 70, 5, 300, 12, 9, 9, 41]])


@pytest.fixture
def config(tokenizer: Tokenizer) -> dict[str, Any]:
    return config_of("llama", tokenizer.get_vocab_size())


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer, config: dict[str, Any]) -> Path:
    return save_folder(tmp_path / "model", config, tokenizer)


def save(folder: Path, config: dict[str, Any], tokenizer: Tokenizer, model: Any) -> ModelSource:
    return resolve(save_folder(folder, config, tokenizer, model))


def quantized(config: dict[str, Any], **settings: Any) -> tuple[dict[str, Any], Any]:
    model = random_model(config)
    model.set_dtype(mx.bfloat16)
    nn.quantize(model, **settings)
    return {**config, "quantization": settings}, model


# --- building ---------------------------------------------------------------------------------


def test_a_model_answers_as_it_did_when_it_was_saved(folder: Path, config: dict[str, Any]) -> None:
    loaded = build(resolve(folder))
    wanted = np.array(random_model(config)(TOKENS))
    np.testing.assert_allclose(np.array(loaded.model(TOKENS)), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_floats_are_float32_on_a_cpu(
    dtype: mx.Dtype, tmp_path: Path, tokenizer: Tokenizer, config: dict[str, Any]
) -> None:
    model = random_model(config)
    model.set_dtype(dtype)
    loaded = build(save(tmp_path / "half", config, tokenizer, model))
    assert {p.dtype for _, p in tree_flatten(loaded.model.parameters())} == {mx.float32}
    assert loaded.model(TOKENS).dtype == mx.float32


@pytest.mark.parametrize(
    "settings",
    [
        {"group_size": 32, "bits": 4, "mode": "affine"},
        {"group_size": 64, "bits": 8, "mode": "affine"},
        {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    ],
)
def test_packed_weights_stay_packed_and_activations_are_float32(
    settings: dict[str, Any], tmp_path: Path, tokenizer: Tokenizer, config: dict[str, Any]
) -> None:
    config, model = quantized({**config, "intermediate_size": 128}, **settings)
    packed = {name: p.dtype for name, p in tree_flatten(model.parameters())}
    loaded = build(save(tmp_path / "packed", config, tokenizer, model))
    for name, parameter in tree_flatten(loaded.model.parameters()):
        kept = packed[name] if packed[name] in (mx.uint32, mx.uint8) else mx.float32
        assert parameter.dtype == kept
    assert loaded.model(TOKENS).dtype == mx.float32


def test_progress_runs_from_nothing_to_all(folder: Path) -> None:
    calls: list[tuple[int, int]] = []
    loaded = build(resolve(folder), lambda done, total: calls.append((done, total)))
    done = [call[0] for call in calls]
    assert done[0] == 0
    assert done == sorted(done)
    assert calls[-1] == (loaded.info.bytes, loaded.info.bytes)
    assert len(calls) > 4


def test_info_counts_the_bytes_that_are_in_memory(folder: Path) -> None:
    loaded = build(resolve(folder))
    size = sum(p.nbytes for _, p in tree_flatten(loaded.model.parameters()))
    assert loaded.info.bytes == size
    assert loaded.info.loaded


def test_loading_on_another_thread_than_mains_works(folder: Path) -> None:
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: (
            found.append(np.array(build(resolve(folder)).model(TOKENS))),
            mx.synchronize(),
        )
    )
    thread.start()
    thread.join()
    assert np.isfinite(found[0]).all()


# --- failures ---------------------------------------------------------------------------------


def test_a_failed_load_leaves_no_memory_behind(folder: Path) -> None:
    def give_up(done: int, total: int) -> None:
        if done > total / 2:
            raise RuntimeError("enough")

    source = resolve(folder)
    build(source)
    mx.clear_cache()
    before = mx.get_active_memory()
    with pytest.raises(ModelBroken, match="enough") as caught:
        build(source, give_up)
    assert mx.get_active_memory() == before
    assert mx.get_cache_memory() == 0
    assert caught.value.__cause__ is None


def test_an_interrupt_stays_an_interrupt(folder: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(resolve(folder), interrupt)


def test_an_architecture_that_mlx_lm_lacks_is_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "no_such"}))
    with pytest.raises(UnsupportedModel, match="no_such"):
        build(resolve(folder))


def test_weights_that_do_not_fit_the_config_are_broken(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(ModelBroken, match="cannot be loaded"):
        build(resolve(folder))


def test_a_tokenizer_that_cannot_be_parsed_is_broken(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelBroken, match="tokenizer in"):
        load_tokenizer(resolve(folder))


def test_a_tokenizers_own_code_is_not_run(folder: Path) -> None:
    (folder / "evil.py").write_text("raise SystemExit('run')\n")
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text("{}")
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings |= {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
    path.write_text(json.dumps(settings))
    with pytest.raises(ModelBroken, match="tokenizer in"):
        load_tokenizer(resolve(folder))


def test_a_models_own_code_runs_only_when_trusted(folder: Path) -> None:
    (folder / "mine.py").write_text("from mlx_lm.models.llama import Model, ModelArgs\n")
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_file": "mine.py"}))
    assert build(resolve(folder, trust_model_code=True)).info.family == "llama"
    with pytest.raises(UnsupportedModel):
        build(resolve(folder))


# --- adapters ---------------------------------------------------------------------------------


@pytest.fixture
def adapter(tmp_path: Path, config: dict[str, Any]) -> Path:
    """A LoRA of rank 2 on the q projections of both layers, with weights that are not zero."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    settings = {
        "fine_tune_type": "lora",
        "num_layers": 2,
        "lora_parameters": {"rank": 2, "scale": 5.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]},
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    mx.random.seed(3)
    size = config["hidden_size"]
    weights = {}
    for layer in range(2):
        stem = f"model.layers.{layer}.self_attn.q_proj"
        weights[f"{stem}.lora_a"] = mx.random.normal((size, 2))
        weights[f"{stem}.lora_b"] = mx.random.normal((2, size))
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    return folder


def test_an_adapter_changes_the_logits_as_its_product_does(
    folder: Path, adapter: Path, config: dict[str, Any]
) -> None:
    plain = build(resolve(folder))
    adapted = build(resolve(folder, adapter))
    weights = mx.load(str(adapter / "adapters.safetensors"))
    for number, layer in enumerate(plain.model.layers):
        stem = f"model.layers.{number}.self_attn.q_proj"
        product = (weights[f"{stem}.lora_a"] @ weights[f"{stem}.lora_b"]).T
        before = np.array(plain.model(TOKENS))
        layer.self_attn.q_proj.weight = layer.self_attn.q_proj.weight + 5.0 * product
    found = np.array(adapted.model(TOKENS))
    np.testing.assert_allclose(found, np.array(plain.model(TOKENS)), rtol=0, atol=1e-3)
    assert np.abs(found - before).max() > 0.1
    assert adapted.info.adapter == adapter
    assert adapted.info.fingerprint != plain.info.fingerprint


def test_an_adapter_of_another_model_is_broken(folder: Path, adapter: Path) -> None:
    weights = mx.load(str(adapter / "adapters.safetensors"))
    wider = {name: mx.ones((value.shape[0] + 1, value.shape[1])) for name, value in weights.items()}
    mx.save_safetensors(str(adapter / "adapters.safetensors"), wider)
    with pytest.raises(ModelBroken, match="does not match"):
        build(resolve(folder, adapter))


# --- memory -----------------------------------------------------------------------------------


def test_the_estimate_is_what_is_loaded(
    folder: Path, adapter: Path, tmp_path: Path, tokenizer: Tokenizer, config: dict[str, Any]
) -> None:
    half = random_model(config)
    half.set_dtype(mx.bfloat16)
    packed = quantized(config, group_size=32, bits=4, mode="affine")
    sources = [
        resolve(folder),
        resolve(folder, adapter),
        save(tmp_path / "half", config, tokenizer, half),
        save(tmp_path / "packed", packed[0], tokenizer, packed[1]),
    ]
    for source in sources:
        assert estimate_bytes(source) == build(source).info.bytes


def test_what_does_not_fit_is_refused_before_anything_is_read(folder: Path) -> None:
    source = resolve(folder)
    needed = estimate_bytes(source)
    check_memory(source, available=needed)
    with pytest.raises(NotEnoughMemory, match="smaller or more strongly quantized") as caught:
        check_memory(source, available=needed - 1)
    assert (caught.value.needed, caught.value.available) == (needed, needed - 1)


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_ROOT", tmp_path)
    assert memory.available_bytes() > 1000
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 600\ninactive_file 100\n")
    assert memory.available_bytes() == 400
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() > 1000


def test_weights_saved_and_loaded_are_equal(folder: Path, config: dict[str, Any]) -> None:
    wanted = weights_of(random_model(config))
    found = weights_of(build(resolve(folder)).model)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.array_equal(found[name], value)
