"""The only door to ``native/``: its CPU kernels, and the same in plain MLX where they are not.

Nothing depends on the extension being there. Each function calls the kernel where there is one
for these shapes and types, and MLX otherwise. ``MLXNB_NATIVE=0`` switches all of it off,
``MLXNB_THREADS`` sets the number of threads, ``MLXNB_ISA=portable`` chooses the plain kernels.
"""

from mlxnb.native.extension import available, reason, wanted
from mlxnb.native.functions import (
    attention,
    linear,
    log_softmax,
    quantized_embedding,
    quantized_matmul,
    rms_norm,
    rope,
    swiglu,
)
from mlxnb.native.memory import spread
from mlxnb.native.model import accelerate

__all__ = [
    "accelerate",
    "attention",
    "available",
    "linear",
    "log_softmax",
    "quantized_embedding",
    "quantized_matmul",
    "reason",
    "rms_norm",
    "rope",
    "spread",
    "swiglu",
    "wanted",
]
