"""How much a service takes on and keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a service.

    Attributes
    ----------
    waiting
        Requests of one model that may wait, for it to be loaded or for their turn.
    output_tokens
        Longest answers by the name of the model, which may be a glob; first match counts.
    idle_unload_s
        Seconds without inference after which a model is unloaded; None: never.
    warm, warm_bytes, warm_s
        Responses that can be continued without the store: how many, their tokens' bytes, and
        the seconds since their last use.
    replay_bytes
        Bytes of the generated tokens that are remembered for clients which send whole
        conversations.
    """

    waiting: int = 16
    output_tokens: Mapping[str, int] = field(default_factory=dict)
    idle_unload_s: float | None = None
    warm: int = 256
    warm_bytes: int = 64 * MIB
    warm_s: float = 3600.0
    replay_bytes: int = 64 * MIB

    def output(self, model: str) -> int | None:
        """Tokens that an answer of this model may have."""
        found = (cap for name, cap in self.output_tokens.items() if fnmatchcase(model, name))
        return next(found, None)
