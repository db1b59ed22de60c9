"""Keys and values kept in a few bits, where the model bears it."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.errors import UnsupportedModel
from mlxnb.models.source import ModelSource

TRIAL = (3, 5, 7)
"""Tokens that the model is tried with: a chunk of two, and one more."""


def quantize_kv(model: Any, source: ModelSource) -> None:
    """Let a loaded model keep its KV in ``source.kv_bits`` bits, from the first token on.

    Raises
    ------
    UnsupportedModel
        It keeps none that could be, or its attention does not take it.
    """
    if source.kv_bits is None:
        return
    refused = f"{source.name} cannot keep its KV in {source.kv_bits} bits"
    group = _group(_tried(model))
    if group is None:
        raise UnsupportedModel(
            f"{refused}: no layer keeps keys and values of {mlxlm.KV_GROUPS[-1]} or a multiple; "
            "load it without kv_bits"
        )
    mlxlm.quantize_kv(model, source.kv_bits, group)
    try:
        _tried(model)
    except Exception as error:
        raise UnsupportedModel(f"{refused} ({error}); load it without kv_bits") from None


def _group(caches: mlxlm.Caches) -> int | None:
    """How many values share a scale; None where there is nothing to quantize."""
    dims = {dim for shape in mlxlm.shapes(caches) for dim in (shape.key_dim, shape.value_dim)}
    groups = (group for group in mlxlm.KV_GROUPS if dims and not any(d % group for d in dims))
    return next(groups, None)


def _tried(model: Any) -> mlxlm.Caches:
    """The caches of a model that has been given a few tokens."""
    caches = mlxlm.new_caches(model)
    *chunk, last = TRIAL
    model(mx.array([chunk]), cache=caches)
    mx.eval(model(mx.array([[last]]), cache=caches))
    mlxlm.evaluate(caches)
    return caches
