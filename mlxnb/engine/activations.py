"""What a chunk of a prompt takes for a moment beside weights and KV, estimated from the config.

Pure arithmetic, for devices that abort where a command finds no memory. It was compared with the
peaks of plain MLX on a CPU, of which it is once to twice as much, and with nothing on Metal so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FUSED = (64, 80, 96, 128)
"""Head dimensions for which MLX's attention of a prompt keeps no scores on Metal."""
SLACK = 1.5
"""By how much an estimate is raised: residuals, masks and what waits to be freed."""


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes of a layer in the midst of its work; layers give theirs back one after another.

    ``token_bytes`` for each token of the chunk, ``score_bytes`` for each of these and each token
    that it attends to.
    """

    token_bytes: int
    score_bytes: int = 0

    @classmethod
    def of(
        cls, config: Mapping[str, Any], itemsize: int, fused: bool | None = None
    ) -> Activations | None:
        """From a model's config, with activations of ``itemsize`` bytes; None: it does not say.

        ``fused``: attention keeps no scores; None: as on Metal, where that is by its head
        dimension.
        """
        text = {**config, **(config.get("text_config") or {})}
        hidden, heads = _whole(text, "hidden_size"), _whole(text, "num_attention_heads")
        if not hidden or not heads:
            return None
        dim = _whole(text, "head_dim") or hidden // heads
        kv_heads = _whole(text, "num_key_value_heads") or heads
        attention = 3 * (heads + kv_heads) * dim  # projected, rotated, and what comes out
        width = 3 * hidden + max(attention, 3 * _feed_forward(text, hidden))
        none = dim in FUSED if fused is None else fused
        scores = 0 if none else heads * itemsize
        return cls(int(SLACK * width * itemsize), int(SLACK * scores))

    def nbytes(self, tokens: int, context: int) -> int:
        """Bytes of a chunk of ``tokens`` tokens behind ``context`` others."""
        return tokens * (self.token_bytes + (context + tokens) * self.score_bytes)

    def fitting(self, room: int, context: int, most: int) -> int:
        """Tokens of the largest chunk, up to ``most``, that takes ``room`` bytes or less."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.nbytes(middle, context) <= room:
                low = middle
            else:
                high = middle - 1
        return low


def _feed_forward(config: Mapping[str, Any], hidden: int) -> int:
    """Width of what a token passes through: a dense layer's, or that of its experts together."""
    dense = _whole(config, "intermediate_size") or 4 * hidden
    each = _whole(config, "moe_intermediate_size") or dense
    experts = _whole(config, "num_experts_per_tok") * each
    shared = _whole(config, "shared_expert_intermediate_size")
    return max(dense, experts + shared)


def _whole(config: Mapping[str, Any], name: str) -> int:
    """A number of the config; 0: there is none, or one for each layer."""
    value = config.get(name)
    return value if isinstance(value, int) else 0
