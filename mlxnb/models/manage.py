"""Fetching and deleting models: what ``mlxnb pull`` and ``mlxnb rm`` do."""

from __future__ import annotations

import shutil
from pathlib import Path

from mlxnb.errors import InvalidOption, ModelNotFound
from mlxnb.models import imported
from mlxnb.models.demo import NAME as DEMO
from mlxnb.models.demo import demo_folder, demo_gguf_folder
from mlxnb.models.folder import check_folder
from mlxnb.models.resolve import HUB_ID, canonical_name, not_found, resolve
from mlxnb.models.source import ModelSource


def pull(name: str, progress: bool = True) -> ModelSource:
    """Fetch or import a model, so that loading it needs no network.

    A Hub model is brought up to date, and its files' hashes are checked; damaged files are
    fetched again.

    Raises
    ------
    ModelNotFound, NetworkUnavailable, ModelBroken, UnsupportedModel
        As :func:`~mlxnb.models.resolve.resolve`.
    """
    known = canonical_name(name)
    if known == DEMO or Path(known).is_absolute() or not HUB_ID.fullmatch(known):
        return resolve(known, progress=progress)
    from mlxnb.models.hub import hub_path

    path = hub_path(known, progress, refresh=True)
    check_folder(path)
    return ModelSource(known, path)


def remove(name: str) -> int:
    """Delete a model from mlxnb's cache or the Hub's; return the bytes that this freed.

    An imported .gguf file stays where it is: its import goes.

    Raises
    ------
    InvalidOption
        It is a folder of the user's own, which is never deleted.
    ModelNotFound
        It is in neither cache.
    """
    known = canonical_name(name)
    if known == DEMO:
        return _remove_folders(known, demo_folder(), demo_gguf_folder())
    if known.endswith(".gguf"):
        from mlxnb.models.gguf.folder import gguf_folder

        return _remove_folders(known, gguf_folder(Path(known)))
    if Path(known).is_absolute():
        raise InvalidOption(
            f"{known} is yours, not mlxnb's: it is not deleted; delete it yourself if you want to"
        )
    return _remove_from_hub(known)


def _remove_folders(name: str, *folders: Path) -> int:
    there = [folder for folder in folders if folder.is_dir()]
    if not there:
        raise ModelNotFound(f"{name} has not been fetched or imported: there is nothing to delete")
    size = sum(file.stat().st_size for folder in there for file in folder.iterdir())
    for folder in there:
        imported.remove(folder)
    return size


def _remove_from_hub(name: str) -> int:
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    if not HUB_ID.fullmatch(name) or not folder.is_dir():
        raise not_found(name)
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    size = sum(file.stat().st_size for file in files)
    shutil.rmtree(folder)
    shutil.rmtree(folder.parent / ".locks" / folder.name, ignore_errors=True)
    return size
