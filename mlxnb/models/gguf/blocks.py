"""GGML's block formats as MLX's affine quantization: ``w = scale · q + bias``, groups of 32.

A format whose blocks are of that shape keeps its integers; only Q6_K, whose groups hold 16
values, becomes float16. Layouts: ggml's ``ggml-common.h``; packing: ``mx.quantize``'s docs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[Any]]
Floats = np.ndarray[Any, np.dtype[Any]]
Affine = tuple[Bytes, Floats, Floats]
"""Integers (rows, n), scales and biases (rows, n / 32)."""

GROUP = 32


@dataclass(frozen=True, slots=True)
class Format:
    """A GGML type: ``elements`` in a block of ``nbytes``; ``bits`` 0 where it stays float."""

    name: str
    elements: int
    nbytes: int
    bits: int = 0
    dtype: str = "F16"
    split: Callable[[Bytes], Affine] | None = None


def to_affine(block: Format, rows: Bytes) -> tuple[Any, Any, Any]:
    """Quantized rows as MLX holds them.

    Parameters
    ----------
    block
        A format with ``bits``.
    rows
        Raw bytes, (rows, blocks x nbytes).

    Returns
    -------
    Packed integers uint32 (rows, n x bits / 32), scales and biases float16 (rows, n / 32).
    """
    assert block.split is not None, f"{block.name} is not quantized"
    values, scales, biases = block.split(_blocks(block, rows))
    height = len(rows)
    packed = _pack(values.reshape(height, -1), block.bits)
    return (
        packed,
        scales.astype("<f2").reshape(height, -1),
        biases.astype("<f2").reshape(height, -1),
    )


def to_float(block: Format, rows: Bytes) -> Any:
    """Rows of an unquantized format, or of Q6_K: (rows, n); bfloat16 as its bits."""
    if block.name == "Q6_K":
        return _q6_k(_blocks(block, rows)).astype("<f2").reshape(len(rows), -1)
    return rows.view({"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[block.dtype])


def _blocks(block: Format, rows: Bytes) -> Bytes:
    return np.ascontiguousarray(rows).reshape(-1, block.nbytes)


def _pack(values: Bytes, bits: int) -> Any:
    """Integers (rows, n) below 2**bits, lowest bit first, into uint32 (rows, n x bits / 32)."""
    if bits == 8:
        return np.ascontiguousarray(values).view("<u4")
    if bits == 4:
        return np.ascontiguousarray(values[:, ::2] | values[:, 1::2] << 4).view("<u4")
    each = np.unpackbits(values[..., None], axis=-1, count=bits, bitorder="little")
    return np.packbits(each.reshape(len(values), -1), axis=-1, bitorder="little").view("<u4")


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte ``at`` of each block, as float32 (blocks, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(quants: Bytes) -> Bytes:
    """Low nibbles, then high ones: (blocks, k) → (blocks, 2k)."""
    return np.concatenate([quants & 15, quants >> 4], axis=-1)


def _fifth_bits(quants: Bytes) -> Bytes:
    """Bit j of 4 bytes, at its place (16) in value j: (blocks, 4) → (blocks, 32)."""
    return np.unpackbits(quants, axis=-1, bitorder="little") << 4


def _q4_0(blocks: Bytes) -> Affine:
    scale = _half(blocks, 0)
    return _nibbles(blocks[:, 2:]), scale, -8 * scale


def _q4_1(blocks: Bytes) -> Affine:
    return _nibbles(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Affine:
    scale = _half(blocks, 0)
    return _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6]), scale, -16 * scale


def _q5_1(blocks: Bytes) -> Affine:
    values = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return values, _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Affine:
    scale = _half(blocks, 0)
    return blocks[:, 2:] ^ 0x80, scale, -128 * scale


def _k_scales(blocks: Bytes) -> tuple[Floats, Floats]:
    """Scales and biases (blocks, 8) of Q4_K and Q5_K: 6-bit factors in 12 bytes at 4."""
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=-1)
    minimum = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=-1)
    return _half(blocks, 0) * scale, -_half(blocks, 2) * minimum


def _q4_k(blocks: Bytes) -> Affine:
    quants = blocks[:, 16:].reshape(-1, 4, GROUP)
    return _nibbles(quants), *_k_scales(blocks)


def _q5_k(blocks: Bytes) -> Affine:
    low = _nibbles(blocks[:, 48:].reshape(-1, 4, GROUP)).reshape(-1, 8, GROUP)
    shifts = np.arange(8, dtype=np.uint8)[:, None]
    high = (blocks[:, None, 16:48] >> shifts & 1) << 4
    return low | high, *_k_scales(blocks)


def _q6_k(blocks: Bytes) -> Floats:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & 3) << 4
    values = (low | high).astype(np.float32) - 32
    scales = blocks[:, 192:208].view(np.int8) * _half(blocks, 208)
    weights: Floats = values.reshape(-1, 16, 16) * scales[:, :, None]
    return weights


FORMATS: dict[int, Format] = {
    0: Format("F32", 1, 4, dtype="F32"),
    1: Format("F16", 1, 2),
    30: Format("BF16", 1, 2, dtype="BF16"),
    2: Format("Q4_0", 32, 18, 4, split=_q4_0),
    3: Format("Q4_1", 32, 20, 4, split=_q4_1),
    6: Format("Q5_0", 32, 22, 5, split=_q5_0),
    7: Format("Q5_1", 32, 24, 5, split=_q5_1),
    8: Format("Q8_0", 32, 34, 8, split=_q8_0),
    12: Format("Q4_K", 256, 144, 4, split=_q4_k),
    13: Format("Q5_K", 256, 176, 5, split=_q5_k),
    14: Format("Q6_K", 256, 210),
}
BY_NAME = {block.name: block for block in FORMATS.values()}


def supported_formats() -> str:
    """The names of the tensor types that can be converted."""
    return ", ".join(BY_NAME)
