"""A GGUF file's tensors written as one model.safetensors, a few rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlxnb.models import safetensors
from mlxnb.models.gguf.architectures import mlx_names, permuted_heads
from mlxnb.models.gguf.blocks import BY_NAME, GROUP, to_affine, to_float
from mlxnb.models.gguf.reader import GGUF, TensorInfo

_CHUNK = 1 << 24
"""Values converted at a time; bounds the memory that an import takes."""


def write_weights(file: GGUF, folder: Path, advance: Callable[[int], object]) -> None:
    """Write ``folder/model.safetensors``; ``advance`` is called with bytes read since the last."""
    names = mlx_names(file)
    specs: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, target in names.items():
        specs.update(_specs(file.tensors[name], target))
    views = safetensors.create(folder / "model.safetensors", specs)
    source = np.memmap(file.path, np.uint8, "r")
    for name, target in names.items():
        info = file.tensors[name]
        order = _row_order(info, permuted_heads(file, name))
        for rows, raw in _chunks(source, info, order):
            _store(views, info, target, rows, raw)
            advance(raw.nbytes)


def quantization(file: GGUF) -> dict[str, Any] | None:
    """The ``quantization`` of config.json: the commonest bits, and each layer that differs."""
    bits = {
        target.removesuffix(".weight"): BY_NAME[file.tensors[name].format].bits
        for name, target in mlx_names(file).items()
        if BY_NAME[file.tensors[name].format].bits
    }
    if not bits:
        return None
    ((usual, _),) = Counter(bits.values()).most_common(1)
    differing = {
        layer: {"group_size": GROUP, "bits": width, "mode": "affine"}
        for layer, width in bits.items()
        if width != usual
    }
    return {"group_size": GROUP, "bits": usual, "mode": "affine", **differing}


def activation_dtype(file: GGUF) -> str:
    """The dtype that the commonest of the matrices asks for; norms are float32 in every file."""
    formats = [tensor.format for tensor in file.tensors.values() if len(tensor.shape) > 1]
    ((usual, _),) = Counter(BY_NAME[name].dtype for name in formats).most_common(1)
    return {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[usual]


def floats(file: GGUF, name: str) -> list[float] | None:
    """A small float32 tensor's values, None where the file has no such tensor."""
    info = file.tensors.get(name)
    if info is None:
        return None
    raw = np.memmap(file.path, np.uint8, "r")[info.start : info.start + info.nbytes]
    return [float(value) for value in to_float(BY_NAME[info.format], raw[None])[0]]


def _specs(info: TensorInfo, target: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    block = BY_NAME[info.format]
    if not block.bits:
        return {target: (block.dtype, info.shape)}
    *outer, width = info.shape
    stem = target.removesuffix(".weight")
    return {
        target: ("U32", (*outer, width * block.bits // 32)),
        f"{stem}.scales": ("F16", (*outer, width // GROUP)),
        f"{stem}.biases": ("F16", (*outer, width // GROUP)),
    }


def _row_order(info: TensorInfo, heads: int | None) -> Any:
    """Row i of the result is row ``order[i]`` of the file; None: as they stand."""
    if heads is None:
        return None
    rows = np.arange(info.shape[0])
    return rows.reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


def _chunks(source: Any, info: TensorInfo, order: Any) -> Iterator[tuple[slice, Any]]:
    raw = source[info.start : info.start + info.nbytes]
    permuted_vector = len(info.shape) == 1 and order is not None
    height = info.shape[0] if len(info.shape) > 1 or permuted_vector else 1
    raw = raw.reshape(height, -1)
    step = max(1, _CHUNK // info.shape[-1])
    for start in range(0, height, step):
        rows = slice(start, min(start + step, height))
        yield rows, raw[rows] if order is None else raw[order[rows]]


def _store(views: dict[str, Any], info: TensorInfo, target: str, rows: slice, raw: Any) -> None:
    block = BY_NAME[info.format]
    if not block.bits:
        view = views[target]
        flat = view.reshape(-1, 1) if len(raw) == view.size else view.reshape(-1, info.shape[-1])
        flat[rows] = to_float(block, raw)
        return
    stem = target.removesuffix(".weight")
    for suffix, part in zip(("weight", "scales", "biases"), to_affine(block, raw), strict=True):
        views[f"{stem}.{suffix}"][rows] = part
