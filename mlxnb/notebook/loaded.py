"""Which models an engine has loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine


def loaded_models(engine: Engine) -> list[str]:
    """Their names."""
    models = engine.models()
    return list(models["name"][models["loaded"]])
