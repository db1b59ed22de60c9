"""Models on this machine that can be loaded by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from mlxnb.errors import MlxnbError
from mlxnb.models.cachedir import cache_dir
from mlxnb.models.demo import NAME as DEMO
from mlxnb.models.demo import demo_folder
from mlxnb.models.folder import check_folder
from mlxnb.models.imported import read_manifest
from mlxnb.models.info import ModelInfo, describe
from mlxnb.models.source import ModelSource


def discover() -> list[ModelInfo]:
    """The demo model (fetched or not), imported GGUF files, and the Hub cache's chat models.

    A folder that mlx-lm could not load, or that is not whole, is left out.
    """
    found = [_demo()]
    for source in [*_imports(), *_hub_models()]:
        try:
            check_folder(source.path)
            found.append(describe(source))
        except MlxnbError:
            continue
    return found


def sources() -> Iterator[ModelSource]:
    """As `discover`, without looking into them: the demo model only where it has been fetched."""
    if read_manifest(demo_folder()) is not None:
        yield ModelSource(DEMO, demo_folder())
    yield from _imports()
    yield from _hub_models()


def near_names(name: str) -> list[str]:
    """Names of models on this machine that look like ``name``, nearest first."""
    names = [DEMO, *(source.name for source in [*_imports(), *_hub_models()])]
    short = {known.rsplit("/", 1)[-1].lower(): known for known in reversed(names)}
    last = name.rsplit("/", 1)[-1].lower()
    close = difflib.get_close_matches(last, list(short), n=3, cutoff=0.5)
    return [short[known] for known in close]


def _demo() -> ModelInfo:
    if read_manifest(demo_folder()) is None:
        return ModelInfo(DEMO)
    return describe(ModelSource(DEMO, demo_folder()))


def _imports() -> Iterator[ModelSource]:
    for folder in _children(cache_dir() / "gguf"):
        manifest = read_manifest(folder)
        if manifest is not None and "gguf" in manifest["origin"]:
            yield ModelSource(manifest["origin"]["gguf"], folder, "gguf")


def _hub_models() -> Iterator[ModelSource]:
    from huggingface_hub import constants

    for folder in _children(Path(constants.HF_HUB_CACHE)):
        if folder.name.startswith("models--"):
            snapshot = _snapshot(folder)
            if snapshot is not None and (snapshot / "config.json").is_file():
                name = folder.name.removeprefix("models--").replace("--", "/")
                yield ModelSource(name, snapshot)


def _snapshot(folder: Path) -> Path | None:
    """The cached snapshot of a repository's main branch."""
    try:
        return folder / "snapshots" / (folder / "refs" / "main").read_text("utf-8").strip()
    except OSError:
        return None


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
