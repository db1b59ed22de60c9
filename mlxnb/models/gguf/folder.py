"""A local .gguf file as an mlx-lm folder in the cache."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from mlxnb.errors import MlxnbError, ModelBroken, ModelNotFound
from mlxnb.models import imported
from mlxnb.models.bar import bar
from mlxnb.models.cachedir import cache_dir
from mlxnb.models.gguf.architectures import ROPE_FACTORS, check_architecture, config
from mlxnb.models.gguf.reader import GGUF, read
from mlxnb.models.gguf.tokenizer import Vocabulary, write_tokenizer
from mlxnb.models.gguf.weights import activation_dtype, floats, quantization, write_weights


def gguf_folder(path: Path) -> Path:
    """Where the import of this file is, or would be: one folder for each path."""
    digest = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:8]
    return cache_dir() / "gguf" / f"{path.stem}-{digest}"


def origin(path: Path) -> dict[str, Any]:
    """A file's identity: another path, size or time means another import."""
    status = path.stat()
    return {
        "gguf": str(path.absolute()),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
    }


def import_gguf(path: Path, progress: bool = True) -> Path:
    """The mlx-lm folder of a .gguf file, made on first use and again when the file changes.

    Raises
    ------
    ModelNotFound
        There is no such file.
    ModelBroken, UnsupportedModel
        It is truncated, or of a kind that is not supported.
    """
    if not path.is_file():
        raise ModelNotFound(f"there is no file {path}")

    def build(folder: Path) -> None:
        convert(path, folder, progress)

    return imported.ensure(gguf_folder(path), origin(path), build)


def convert(path: Path, folder: Path, progress: bool = True) -> None:
    """Write the contents of the .gguf file ``path`` into the empty ``folder``.

    Raises
    ------
    ModelBroken, UnsupportedModel
        As :func:`import_gguf`.
    """
    file = read(path)
    try:
        _convert(file, folder, progress)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, MlxnbError):
            raise
        raise ModelBroken(f"{path} has metadata that makes no sense: {error}") from error


def _convert(file: GGUF, folder: Path, progress: bool) -> None:
    check_architecture(file)
    write_tokenizer(file, folder)
    settings = config(file, Vocabulary(file).ends(), floats(file, ROPE_FACTORS))
    settings["dtype"] = activation_dtype(file)
    packed = quantization(file)
    if packed:
        settings["quantization"] = settings["quantization_config"] = packed
    (folder / "config.json").write_text(json.dumps(settings, indent=1), "utf-8")
    total = sum(tensor.nbytes for tensor in file.tensors.values())
    with bar(f"Importing {file.path.name}", total, show=progress) as shown:
        write_weights(file, folder, shown.update)
