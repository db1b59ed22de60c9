"""The only door to mlx-lm's internals: KV caches and the batch generator.

What is used here is not mlx-lm's public interface, so ``check()`` looks for it at start-up and
an upgrade of mlx-lm is this package's work alone.
"""

from mlxnb.mlxlm.batch import Batch, Normalizer, Processor, RowStep, Sampler, is_number
from mlxnb.mlxlm.caches import (
    KV_GROUPS,
    Caches,
    capacity,
    evaluate,
    lengths,
    nbytes,
    new_caches,
    plain,
    quantize_kv,
    rewindable,
    token_buffer,
    trim,
    widen,
)
from mlxnb.mlxlm.cells import Kind, cells, fixed_bytes, kind_of, known, reach
from mlxnb.mlxlm.door import STEP, check
from mlxnb.mlxlm.planes import LayerShape, Run, from_arrays, read, shapes
from mlxnb.mlxlm.states import States, form_from_json, form_to_json, freeze, thaw
from mlxnb.mlxlm.tails import Part, Tail, joined, put_tail, tail

__all__ = [
    "KV_GROUPS",
    "STEP",
    "Batch",
    "Caches",
    "Kind",
    "LayerShape",
    "Normalizer",
    "Part",
    "Processor",
    "RowStep",
    "Run",
    "Sampler",
    "States",
    "Tail",
    "capacity",
    "cells",
    "check",
    "evaluate",
    "fixed_bytes",
    "form_from_json",
    "form_to_json",
    "freeze",
    "from_arrays",
    "is_number",
    "joined",
    "kind_of",
    "known",
    "lengths",
    "nbytes",
    "new_caches",
    "plain",
    "put_tail",
    "quantize_kv",
    "reach",
    "read",
    "rewindable",
    "shapes",
    "tail",
    "thaw",
    "token_buffer",
    "trim",
    "widen",
]
