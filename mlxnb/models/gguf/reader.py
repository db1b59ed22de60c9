"""A GGUF file's metadata and tensor table, bounds checked; the tensors stay on disk."""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxnb.errors import ModelBroken, UnsupportedModel
from mlxnb.models.gguf.blocks import FORMATS, supported_formats

_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"
}  # fmt: skip
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of the file: ``shape`` is row-major (GGUF's own order reversed)."""

    name: str
    shape: tuple[int, ...]
    format: str
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class GGUF:
    """A GGUF file: its metadata as Python values, its tensors by name."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]

    @property
    def architecture(self) -> str:
        """``general.architecture``."""
        return str(self.metadata.get("general.architecture", "(none)"))

    def setting(self, key: str, default: Any = None) -> Any:
        """The architecture's own metadata value ``key``, e.g. ``block_count``."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def required(self, key: str) -> Any:
        """Like :meth:`setting`; a missing one is a ModelBroken."""
        value = self.setting(key)
        if value is None:
            raise ModelBroken(f"{self.path}: no {self.architecture}.{key} in its metadata")
        return value


def read(path: Path) -> GGUF:
    """Read the header of a GGUF file (version 2 or 3, little-endian).

    Raises
    ------
    ModelBroken
        Truncated, not GGUF, or its tensor table points outside the file.
    UnsupportedModel
        Another version or byte order, or a tensor type that cannot be converted exactly.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(path, _Cursor(data))
    except (OSError, ValueError, struct.error, UnicodeDecodeError) as error:
        if isinstance(error, ModelBroken | UnsupportedModel):
            raise
        raise ModelBroken(f"{path} is truncated or not a GGUF file: {error}") from error


class _Cursor:
    """Reads values from the front; everything past the end is a ``struct.error``."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        length = self.count()
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8", "replace")

    def count(self, size: int = 1) -> int:
        """A length in items of at least ``size`` bytes, checked against what is left."""
        length = int(self.scalar("Q"))
        if length * size > len(self.data) - self.at:
            raise ValueError("a length exceeds the file")
        return length

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        if kind not in _SCALARS:
            raise ValueError(f"unknown metadata type {kind}")
        return self.scalar(_SCALARS[kind])

    def array(self) -> list[Any]:
        kind = self.scalar("I")
        if kind == _STRING:
            return [self.string() for _ in range(self.count(8))]
        if kind not in _SCALARS:
            raise ValueError(f"unknown array type {kind}")
        code = _SCALARS[kind]
        length = self.count(struct.calcsize("<" + code))
        values = struct.unpack_from(f"<{length}{code}", self.data, self.at)
        self.at += struct.calcsize("<" + code) * length
        return list(values)


def _parse(path: Path, cursor: _Cursor) -> GGUF:
    if cursor.data[:4] != b"GGUF":
        raise ModelBroken(f"{path} is not a GGUF file")
    cursor.at = 4
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise UnsupportedModel(
            f"{path}: GGUF version {version & 0xFFFF or version >> 24} or a big-endian file; "
            "supported: versions 2 and 3, little-endian"
        )
    tensor_count, value_count = cursor.count(24), cursor.count(13)
    metadata = {}
    for _ in range(value_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("I"))
    raw = [_tensor_entry(cursor) for _ in range(tensor_count)]
    alignment = int(metadata.get("general.alignment", 32)) or 1
    base = -(-cursor.at // alignment) * alignment
    tensors = {entry[0]: _tensor(path, base, *entry) for entry in raw}
    end = max((tensor.start + tensor.nbytes for tensor in tensors.values()), default=0)
    if end > len(cursor.data):
        raise ModelBroken(
            f"{path} is truncated: {end:,} bytes expected, {len(cursor.data):,} there; "
            "copy it again"
        )
    return GGUF(path, metadata, tensors)


def _tensor_entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.string()
    dimensions = cursor.scalar("I")
    if not 1 <= dimensions <= 4:
        raise ValueError(f"{name} has {dimensions} dimensions")
    shape = tuple(int(cursor.scalar("Q")) for _ in range(dimensions))
    return name, shape[::-1], cursor.scalar("I"), cursor.scalar("Q")


def _tensor(
    path: Path, base: int, name: str, shape: tuple[int, ...], kind: int, offset: int
) -> TensorInfo:
    block = FORMATS.get(kind)
    if block is None:
        raise UnsupportedModel(
            f"{path}: tensor {name} is of GGML type {kind}; supported: {supported_formats()}"
        )
    if shape[-1] % block.elements:
        raise ModelBroken(f"{path}: rows of {name} are not whole {block.name} blocks")
    nbytes = math.prod(shape) // block.elements * block.nbytes
    return TensorInfo(name, shape, block.name, base + offset, nbytes)
