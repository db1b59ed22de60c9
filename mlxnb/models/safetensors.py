"""The safetensors file format: headers read without the weights, files written in place.

A file is an 8-byte little-endian header length, that many bytes of JSON (name → dtype, shape and
``data_offsets``), and the tensors' bytes. Format: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mlxnb.errors import ModelBroken

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
NUMPY = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U32": "<u4"}
"""Types that are written, as numpy sees them; numpy has no bfloat16, its bits are kept."""

_HEADER_LIMIT = 100_000_000


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file: safetensors dtype name, shape, and ``[start, end)`` in its data."""

    dtype: str
    shape: tuple[int, ...]
    start: int = 0
    end: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its data."""
        return self.size * ITEM_BYTES[self.dtype]


def read_header(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file by name, from its header.

    Raises
    ------
    ModelBroken
        The file is truncated, has bytes too many, or its header cannot be read.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _HEADER_LIMIT):
                raise ModelBroken(f"{path} is truncated or not a safetensors file")
            entries = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        tensors = {name: _tensor(entry) for name, entry in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ModelBroken):
            raise
        raise ModelBroken(f"{path} cannot be read as safetensors: {error}") from error
    _check_extent(path, tensors, size - 8 - length)
    return tensors


def _tensor(entry: dict[str, Any]) -> Tensor:
    start, end = entry["data_offsets"]
    tensor = Tensor(entry["dtype"], tuple(entry["shape"]), start, end)
    if ITEM_BYTES.get(tensor.dtype) and tensor.nbytes != end - start:
        raise ValueError(f"{entry} has the wrong number of bytes")
    return tensor


def _check_extent(path: Path, tensors: dict[str, Tensor], present: int) -> None:
    expected = max((tensor.end for tensor in tensors.values()), default=0)
    if present != expected:
        raise ModelBroken(
            f"{path} is truncated or altered: {expected:,} bytes of tensors expected, "
            f"{present:,} there"
        )


def create(path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    """Write a file with a full header and unset data; return numpy views into it, to be filled.

    Parameters
    ----------
    path
        The file; replaced if there.
    tensors
        Name → (dtype among :data:`NUMPY`, shape).

    Returns
    -------
    Name → array that writes through to the file (``flush`` is the kernel's).
    """
    import numpy as np

    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        end = offset + Tensor(dtype, shape).nbytes
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.flush()
        _reserve(file, 8 + len(text) + offset)
    data = np.memmap(path, np.uint8, "r+", offset=8 + len(text), shape=(offset,))
    return {name: _view(data, header[name]) for name in tensors}


def _reserve(file: BinaryIO, size: int) -> None:
    """Claim the space now: on a full disk, writing to a mapped file would end the process."""
    if shutil.disk_usage(os.path.dirname(os.path.abspath(file.name))).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    file.truncate(size)


def _view(data: Any, entry: dict[str, Any]) -> Any:
    start, end = entry["data_offsets"]
    return data[start:end].view(NUMPY[entry["dtype"]]).reshape(entry["shape"])
