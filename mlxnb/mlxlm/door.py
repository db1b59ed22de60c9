"""The parts of mlx-lm that are not its public interface, and whether they are there.

Measured against mlx-lm 0.32.2.
"""

from __future__ import annotations

import importlib
import resource
from typing import Any


def _import(*names: str) -> list[Any]:
    """Modules of mlx-lm, the process's limit of open files left as it is.

    ``mlx_lm.utils`` sets it to 2048 of 4096 when imported: that lowers most hard limits for good,
    and fails where the hard limit is below 4096.
    """
    original = resource.setrlimit
    resource.setrlimit = lambda which, limits: None
    try:
        return [importlib.import_module(f"mlx_lm.{name}") for name in names]
    finally:
        resource.setrlimit = original


# by name: the package's attribute `generate` is a function
cache, generate = _import("models.cache", "generate")

STEP: int = cache.KVCache.step
"""Tokens by which a contiguous cache grows."""

_DECODING = (
    *("uids", "prompt_cache", "tokens", "samplers", "fallback_sampler", "logits_processors"),
    *("_step", "_token_context", "_current_tokens", "_current_logprobs"),
    *("_next_tokens", "_next_logprobs"),
)
_GENERATOR = ("insert", "next", "remove", "extract_cache", "prompt_cache_nbytes", "close")


def check() -> None:
    """Raise ``ImportError`` if this mlx-lm lacks what this module uses; makes MLX arrays."""
    probe = generate.GenerationBatch.empty(None, generate.greedy_sampler)
    wanted = {
        "KVCache": (cache.KVCache(), ("keys", "values", "offset", "step", "trim", "state")),
        "GenerationBatch": (probe, _DECODING),
        "BatchGenerator": (generate.BatchGenerator, _GENERATOR),
        "TokenBuffer": (cache.TokenBuffer, ("update_and_fetch",)),
    }
    for name, (owner, attributes) in wanted.items():
        for attribute in attributes:
            if not hasattr(owner, attribute):
                raise ImportError(
                    f"this mlx-lm has no {name}.{attribute}; mlxnb works with mlx-lm 0.32 "
                    "from 0.32.2 on: pip install 'mlx-lm>=0.32.2,<0.33'"
                )
