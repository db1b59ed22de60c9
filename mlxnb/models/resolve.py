"""From a name to a model on this machine."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from mlxnb.errors import InvalidOption, ModelBroken, ModelNotFound
from mlxnb.models import safetensors
from mlxnb.models.demo import NAME as DEMO
from mlxnb.models.demo import demo_path
from mlxnb.models.discover import near_names
from mlxnb.models.folder import check_folder
from mlxnb.models.source import ModelSource

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
"""An organization or user, and a repository."""
KV_BITS = (2, 4, 8)
"""Bits that mlx-lm can keep keys and values in."""


def canonical_name(name: str | Path) -> str:
    """The one name by which a model is known: paths are absolute, others stay as they are.

    ``demo`` is always the demo model; a folder of that name is ``./demo``.

    Raises
    ------
    InvalidOption
        It is empty, or can be no path and no name.
    """
    text = str(name)
    if text == DEMO:
        return text
    if not text:
        raise InvalidOption("the name of a model is empty; the current folder is '.'")
    path = Path(text).expanduser()
    explicit = text.startswith(("/", "./", "../", "~")) or text in (".", "..")
    if _exists(path) or explicit or text.endswith(".gguf"):
        return os.path.abspath(path)
    return text


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # too long, or behind a folder that may not be entered
        shown = str(path) if len(str(path)) < 200 else f"{str(path)[:60]}…"
        raise InvalidOption(f"the model {shown!r}: {error.strerror or error}") from None


def resolve(
    name: str | Path,
    adapter: str | Path | None = None,
    progress: bool = True,
    trust_model_code: bool = False,
    kv_bits: int | None = None,
) -> ModelSource:
    """Find a model, fetching or importing it where that is needed.

    Parameters
    ----------
    name
        ``demo``; a folder in mlx-lm's format; a ``.gguf`` file; or a Hub id, ``org/name``.
        What exists as a path is a path.
    adapter
        A folder of mlx-lm adapters to put on it.
    progress
        Show progress bars.
    trust_model_code
        Accept a config that names a Python file to build the model with, and so run it.
    kv_bits
        Bits in which keys and values are kept: 2, 4 or 8. None: as they are.

    Raises
    ------
    InvalidOption
        Another number of bits.
    ModelNotFound
        No such model; lists near names.
    NetworkUnavailable
        It has to be fetched and cannot be; says what to do.
    ModelBroken
        A part is missing or damaged; says which.
    UnsupportedModel
        A kind of file that cannot be converted, or a model that needs code of its own.
    """
    if kv_bits is not None and (isinstance(kv_bits, bool) or kv_bits not in KV_BITS):
        raise InvalidOption(f"kv_bits is one of {KV_BITS}, not {kv_bits!r}")
    known = canonical_name(name)
    source = _find(known, progress, trust_model_code)
    check_folder(source.path, trust_model_code)
    own = _adapter(adapter) if adapter is not None else None
    return replace(source, adapter=own, kv_bits=kv_bits)


def _find(name: str, progress: bool, trust: bool) -> ModelSource:
    if name == DEMO:
        return ModelSource(name, demo_path(progress=progress))
    path = Path(name)
    if path.is_dir():
        return ModelSource(name, path, trust_model_code=trust)
    if path.is_file():
        return _file(name, path, progress)
    if not path.is_absolute() and HUB_ID.fullmatch(name):
        from mlxnb.models.hub import hub_path

        return ModelSource(name, hub_path(name, progress), trust_model_code=trust)
    raise not_found(name)


def _file(name: str, path: Path, progress: bool) -> ModelSource:
    if path.suffix != ".gguf":
        raise ModelNotFound(f"{name} is a file; a model is a folder or a .gguf file")
    from mlxnb.models.gguf.folder import import_gguf

    return ModelSource(name, import_gguf(path, progress), "gguf")


def not_found(name: str) -> ModelNotFound:
    """The error for a name that nothing goes by."""
    near = near_names(name)
    hint = f"; near names: {', '.join(near)}" if near else ""
    return ModelNotFound(
        f"there is no model {name!r}{hint}. A model is demo, a folder, a .gguf file, or a Hub id "
        "such as org/name"
    )


def _adapter(adapter: str | Path) -> Path:
    path = Path(os.path.abspath(Path(adapter).expanduser()))
    for name in ("adapter_config.json", "adapters.safetensors"):
        if not (path / name).is_file():
            raise ModelBroken(f"the adapter {path} has no {name}")
    safetensors.read_header(path / "adapters.safetensors")
    return path
