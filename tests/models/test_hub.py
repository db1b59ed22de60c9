from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from mlxnb.errors import InvalidOption, ModelBroken, ModelNotFound, NetworkUnavailable
from mlxnb.models.discover import discover
from mlxnb.models.manage import pull, remove
from mlxnb.models.resolve import resolve

from .fake_hub import Hub
from .tiny import config_of, save_folder

NAME = "tiny-org/tiny-llama"

pytestmark = pytest.mark.usefixtures("cache", "hub_cache")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with one model; what huggingface_hub sends goes there."""
    hub = Hub()
    server = hub.start()
    address = f"http://127.0.0.1:{server.server_port}"
    constants = "huggingface_hub.constants"
    monkeypatch.setattr(f"{constants}.ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(f"{constants}.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(f"{constants}.HF_HUB_DISABLE_TELEMETRY", True)
    yield hub
    server.shutdown()
    server.server_close()


@pytest.fixture
def files(hub: Hub, tmp_path: Path, tokenizer: Tokenizer) -> dict[str, bytes]:
    folder = save_folder(
        tmp_path / "model", config_of("llama", tokenizer.get_vocab_size()), tokenizer
    )
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.repositories[NAME] = {**content, "README.md": b"#", "modeling.py": b"raise SystemExit"}
    return content


def weights(path: Path) -> Path:
    return path / "model.safetensors"


def test_a_model_is_fetched_and_then_needs_no_network(hub: Hub, files: dict[str, bytes]) -> None:
    source = resolve(NAME, progress=False)
    assert source.name == NAME
    assert weights(source.path).read_bytes() == files["model.safetensors"]
    before = hub.requests
    assert resolve(NAME, progress=False) == source
    assert hub.requests == before


def test_only_what_is_read_is_fetched(hub: Hub, files: dict[str, bytes]) -> None:
    resolve(NAME, progress=False)
    assert sorted(hub.downloads) == sorted(files)


def test_the_hubs_token_is_sent(
    hub: Hub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    resolve(NAME, progress=False)
    assert "Bearer hf_secret" in hub.tokens


@pytest.mark.parametrize("size", [0, 100, -1])
def test_a_truncated_file_is_fetched_again(hub: Hub, files: dict[str, bytes], size: int) -> None:
    blob = weights(resolve(NAME, progress=False).path).resolve()
    blob.write_bytes(blob.read_bytes()[:size])
    hub.downloads.clear()
    source = resolve(NAME, progress=False)
    assert hub.downloads == ["model.safetensors"]
    assert weights(source.path).read_bytes() == files["model.safetensors"]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_truncated_json_file_is_fetched_again(
    hub: Hub, files: dict[str, bytes], name: str
) -> None:
    blob = (resolve(NAME, progress=False).path / name).resolve()
    blob.write_bytes(files[name][:-5])
    hub.downloads.clear()
    source = resolve(NAME, progress=False)
    assert hub.downloads == [name]
    assert (source.path / name).read_bytes() == files[name]


def test_a_missing_file_is_fetched_again(hub: Hub, files: dict[str, bytes]) -> None:
    path = weights(resolve(NAME, progress=False).path)
    path.resolve().unlink()
    path.unlink()
    source = resolve(NAME, progress=False)
    assert weights(source.path).read_bytes() == files["model.safetensors"]


def test_an_altered_file_is_fetched_again_by_pull(hub: Hub, files: dict[str, bytes]) -> None:
    blob = weights(resolve(NAME, progress=False).path).resolve()
    content = np.frombuffer(blob.read_bytes(), np.uint8).copy()
    content[-7] ^= 1
    blob.write_bytes(content.tobytes())
    source = pull(NAME, progress=False)
    assert weights(source.path).read_bytes() == files["model.safetensors"]


def test_a_download_altered_on_the_way_is_fetched_again(hub: Hub, files: dict[str, bytes]) -> None:
    right = files["model.safetensors"]
    hub.spoiled["model.safetensors"] = [right[:-1] + bytes([right[-1] ^ 1])]
    source = resolve(NAME, progress=False)
    assert weights(source.path).read_bytes() == right
    assert hub.downloads.count("model.safetensors") == 2


def test_what_comes_damaged_twice_is_broken(hub: Hub, files: dict[str, bytes]) -> None:
    hub.repositories[NAME]["model.safetensors"] = files["model.safetensors"][:-10]
    with pytest.raises(ModelBroken, match=r"twice \(model.safetensors\).*mlxnb rm"):
        resolve(NAME, progress=False)
    assert hub.downloads.count("model.safetensors") == 2


def test_an_unknown_repository_is_not_found(hub: Hub) -> None:
    with pytest.raises(ModelNotFound, match="no nobody/nothing"):
        resolve("nobody/nothing", progress=False)


def test_a_gated_repository_says_how_to_get_in(hub: Hub) -> None:
    hub.refused["big/gated"] = (403, "GatedRepo")
    with pytest.raises(ModelNotFound, match=r"gated: accept its terms.*hf auth login"):
        resolve("big/gated", progress=False)


def test_a_failing_hub_is_no_network(hub: Hub) -> None:
    hub.refused["big/model"] = (500, "")
    with pytest.raises(NetworkUnavailable, match="could not be reached"):
        resolve("big/model", progress=False)


def test_no_network_says_what_to_do(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(NetworkUnavailable, match=r"check the network.*or demo"):
        resolve(NAME, progress=False)


def test_a_cached_model_loads_without_a_network(
    hub: Hub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(NAME, progress=False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert weights(resolve(NAME, progress=False).path).is_file()


def test_offline_and_not_cached_names_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(NetworkUnavailable, match="HF_HUB_OFFLINE"):
        resolve(NAME, progress=False)


def test_a_base_model_is_not_fetched_again(hub: Hub, files: dict[str, bytes]) -> None:
    hub.repositories[NAME]["tokenizer_config.json"] = b"{}"
    for _ in range(2):
        with pytest.raises(ModelBroken, match="no chat template"):
            resolve(NAME, progress=False)
    assert hub.downloads.count("model.safetensors") == 1


def test_progress_can_be_off(
    hub: Hub, files: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    resolve(NAME, progress=False)
    assert capsys.readouterr().err == ""


def test_progress_can_be_on(
    hub: Hub, files: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    resolve(NAME, progress=True)
    assert "Fetching" in capsys.readouterr().err


def test_a_fetched_model_is_discovered_and_its_near_names_found(
    hub: Hub, files: dict[str, bytes]
) -> None:
    resolve(NAME, progress=False)
    assert NAME in [info.name for info in discover()]
    with pytest.raises(ModelNotFound, match=f"near names: {NAME}"):
        resolve("tiny-lama", progress=False)


def test_removing_frees_its_bytes_and_no_other_models(
    hub: Hub, files: dict[str, bytes], hub_cache: Path
) -> None:
    hub.repositories["other/model"] = hub.repositories[NAME]
    resolve(NAME, progress=False)
    kept = resolve("other/model", progress=False)
    assert remove(NAME) >= len(files["model.safetensors"])
    assert [path.name for path in hub_cache.iterdir() if "tiny" in path.name] == []
    assert weights(kept.path).is_file()
    with pytest.raises(ModelNotFound):
        remove(NAME)


def test_a_users_folder_is_never_removed(hub: Hub, files: dict[str, bytes], tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(tmp_path / "model", own)
    with pytest.raises(InvalidOption, match="not deleted"):
        remove(str(own))
    assert weights(own).is_file()
