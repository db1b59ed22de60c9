"""How a GGUF file stretches its rotary positions, as mlx-lm's ``rope_scaling``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlxnb.errors import UnsupportedModel
from mlxnb.models.gguf.reader import GGUF


def shortest(value: float) -> float:
    """A float32 as the shortest decimal that gives it: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def rope_scaling(file: GGUF, factors: list[float] | None) -> dict[str, Any] | None:
    """The ``rope_scaling`` of config.json, None where positions are not stretched.

    Parameters
    ----------
    file
        The header.
    factors
        The tensor of rotary factors, where the file has one: Llama 3's scaling.

    Raises
    ------
    UnsupportedModel
        A kind that mlx-lm does not have, or factors that are not Llama 3's.
    """
    legacy = float(file.setting("rope.scale_linear", 0.0))
    kind = file.setting("rope.scaling.type", "linear" if legacy else "none")
    factor = shortest(file.setting("rope.scaling.factor", legacy))
    if factors is not None:
        return _llama3_scaling(file, factors)
    if kind == "none" or factor in (0.0, 1.0):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    original = file.setting("rope.scaling.original_context_length")
    if kind == "yarn" and original:
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": int(original),
        }
    raise UnsupportedModel(
        f"{file.path}: rope scaling {kind!r} is not supported; "
        "supported: none, linear, yarn, llama3"
    )


def _llama3_scaling(file: GGUF, factors: list[float]) -> dict[str, Any]:
    """Llama 3's scaling, whose parameters a file keeps only as the factors they give."""
    base = float(file.setting("rope.freq_base", 10000.0))
    scaling = {
        "rope_type": "llama3",
        "factor": float(round(max(factors), 3)),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    expected = _llama3_factors(base, 2 * len(factors), scaling)
    if any(abs(one - other) > 1e-3 * other for one, other in zip(factors, expected, strict=True)):
        raise UnsupportedModel(
            f"{file.path}: its rotary factors are not those of Llama 3's scaling, "
            "the only ones supported"
        )
    return scaling


def _llama3_factors(base: float, size: int, scaling: dict[str, Any]) -> list[float]:
    old, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    found = []
    for at in range(0, size, 2):
        wavelength = 2 * math.pi * base ** (at / size)
        smooth = (old / wavelength - low) / (high - low)
        smooth = min(1.0, max(0.0, smooth))
        found.append(1 / ((1 - smooth) / factor + smooth))
    return found
