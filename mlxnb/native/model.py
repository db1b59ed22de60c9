"""A loaded model: its layers and functions exchanged for ours."""

from __future__ import annotations

import functools
import sys
from typing import Any

import mlx.core as mx

from mlxnb.native.blocks import fuse
from mlxnb.native.extension import available
from mlxnb.native.functions import Mask, attention, swiglu
from mlxnb.native.layers import is_ours, over
from mlxnb.native.memory import gather


def accelerate(model: Any) -> int:
    """Let a loaded model use the kernels; its parameters keep their names, types and values.

    Layers get our classes, the functions that mlx-lm's model modules import by name are bound
    anew in the modules of this model's classes, the parameters move to large pages, and blocks of
    the plain kind become two kernels each, which do not see parameters that are exchanged later.
    The model is evaluated.

    Returns
    -------
    int
        How many layers now use kernels; 0 where there are none: ``reason()`` says why.
    """
    if not available():
        return 0
    for module in model.modules():
        layer = over(type(module))
        if layer is not None and getattr(module, "mode", "affine") == "affine":
            module.__class__ = layer
    for name in {type(module).__module__ for module in model.modules()}:
        if name.startswith("mlx_lm.models."):
            _rebind(sys.modules[name])
    gather(model)
    for module in model.modules():
        fuse(module)
    return sum(map(is_ours, model.modules()))


def _rebind(module: Any) -> None:
    """Replace what a model module imported; what it defines itself is left alone."""
    for name, (home, make) in _REBOUND.items():
        original: Any = getattr(module, name, None)
        theirs = getattr(sys.modules.get(home), name, None)
        if original is not None and original is theirs:
            setattr(module, name, make(original))
        elif theirs is not None and getattr(original, "unpaged", None) is theirs:
            original.unpaged = make(theirs)  # attention that looks for paged caches first


def _attention_over(original: Any) -> Any:
    @functools.wraps(original)
    def scaled_dot_product_attention(
        queries: mx.array,
        keys: Any,
        values: Any,
        cache: Any,
        scale: float,
        mask: Mask,
        sinks: mx.array | None = None,
    ) -> Any:
        if hasattr(cache, "bits") or not available():
            return original(queries, keys, values, cache, scale, mask, sinks)
        return attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks)

    return scaled_dot_product_attention


def _swiglu_over(original: Any) -> Any:
    def ours(gate: mx.array, x: mx.array) -> Any:
        return (swiglu if available() else original)(gate, x)

    return ours


_REBOUND = {
    "scaled_dot_product_attention": ("mlx_lm.models.base", _attention_over),
    "swiglu": ("mlx_lm.models.activations", _swiglu_over),
}
