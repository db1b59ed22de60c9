"""MLX's layers over our kernels.

Each is a subclass without state of its own: a layer in a model takes it as its class, and its
parameters stay where they are. The classes are made here because MLX's have no types.
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

import mlx.core as mx

from mlxnb.native.functions import linear, quantized_embedding, quantized_matmul, rms_norm, rope

_nn: Any = importlib.import_module("mlx.nn")


def _quantized_linear(layer: Any, x: mx.array) -> mx.array:
    bias = layer.get("bias")
    return quantized_matmul(x, *_packed(layer), bias, group_size=layer.group_size, bits=layer.bits)


def _linear(layer: Any, x: mx.array) -> mx.array:
    return linear(x, layer["weight"], layer.get("bias"))


def _quantized_embedding(layer: Any, ids: mx.array) -> mx.array:
    return quantized_embedding(ids, *_packed(layer), group_size=layer.group_size, bits=layer.bits)


def _packed(layer: Any) -> tuple[mx.array, mx.array, mx.array | None]:
    return layer["weight"], layer["scales"], layer.get("biases")


def _rms_norm(layer: Any, x: mx.array) -> mx.array:
    return rms_norm(x, layer["weight"], layer.eps)


def _rope(layer: Any, x: mx.array, offset: int | mx.array = 0) -> mx.array:
    frequencies, traditional, scale = turn_of(layer)
    return rope(x, frequencies, offset, traditional=traditional, scale=scale)


def turn_of(layer: Any) -> tuple[mx.array, bool, float]:
    """What one of our rotations does: frequencies, whether pairs are adjacent, and the scale."""
    if "_freqs" not in layer:
        return _frequencies(layer.dims, layer.base), layer.traditional, layer.scale
    if "_inverse" not in layer:  # evaluated once, and no parameter for its name
        layer["_inverse"] = 1 / layer["_freqs"]
        mx.eval(layer["_inverse"])
    return layer["_inverse"], layer.traditional, 1.0


@functools.lru_cache(maxsize=64)
def _frequencies(dims: int, base: float) -> mx.array:
    """MLX's own arithmetic, so that angles agree to the bit: ``(dims / 2,)``, evaluated."""
    half = dims // 2
    found = mx.exp(mx.arange(0, -half, -1, dtype=mx.float32) * (math.log(base) / half))
    mx.eval(found)
    return found


def made_over(base: Any, **methods: Any) -> type[Any]:
    """A subclass of the same name, with these methods in place of the layer's own."""
    return type(base.__name__, (base,), {"__module__": __name__, **methods})


_OURS: dict[type[Any], type[Any]] = {
    _nn.QuantizedLinear: made_over(_nn.QuantizedLinear, __call__=_quantized_linear),
    _nn.Linear: made_over(_nn.Linear, __call__=_linear),
    _nn.QuantizedEmbedding: made_over(
        _nn.QuantizedEmbedding, __call__=_quantized_embedding, as_linear=_quantized_linear
    ),
    _nn.Embedding: made_over(_nn.Embedding, as_linear=_linear),
    _nn.RMSNorm: made_over(_nn.RMSNorm, __call__=_rms_norm),
    _nn.RoPE: made_over(_nn.RoPE, __call__=_rope),
}
# mlx-lm's own rotations that differ in their frequencies alone
_SCALED = {"Llama3RoPE", "ProportionalRoPE"}


def over(kind: type[Any]) -> type[Any] | None:
    """Our class for a layer's; None where there is none."""
    if kind.__module__ == "mlx_lm.models.rope_utils" and kind.__name__ in _SCALED:
        return _OURS.setdefault(kind, made_over(kind, __call__=_rope))
    return _OURS.get(kind)


def is_ours(layer: Any) -> bool:
    """Whether a layer has a class of ours."""
    return type(layer).__module__ == __name__
