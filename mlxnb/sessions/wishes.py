"""How a model's makers want it to be sampled."""

from __future__ import annotations

import logging

from mlxnb.engine.sampling import Sampling
from mlxnb.errors import InvalidOption
from mlxnb.models.generation import generation_defaults
from mlxnb.models.source import ModelSource

log = logging.getLogger(__name__)


def wishes(source: ModelSource) -> Sampling:
    """Sampling from the model's generation_config.json; what cannot be is left out."""
    found = Sampling()
    for name, value in generation_defaults(source).items():
        try:
            found = Sampling.of({name: value}).over(found)
        except InvalidOption as error:
            log.warning("%s: generation_config.json is ignored where %s", source.name, error)
    return found
