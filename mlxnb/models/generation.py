"""How a model's makers want it to be sampled."""

from __future__ import annotations

import json

from mlxnb.models.source import ModelSource

_SETTINGS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def generation_defaults(source: ModelSource) -> dict[str, float]:
    """Sampling settings from generation_config.json, empty unless it says ``do_sample``.

    Keys are among temperature, top_p, top_k, min_p and repetition_penalty. A file that asks for
    sampling and names no temperature means 1, transformers' default.
    """
    try:
        config = json.loads((source.path / "generation_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(config, dict) or config.get("do_sample") is not True:
        return {}
    found = {key: config[key] for key in _SETTINGS if _is_number(config.get(key))}
    return {"temperature": 1.0, **found}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
