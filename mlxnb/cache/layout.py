"""What a model's caches are made of, as far as reusing them is concerned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlxnb import mlxlm

STRIDE = 512
"""Tokens between two checkpoints in a long stretch without a message's end, at the least."""
LONGEST_STRIDE = 32 * STRIDE


@dataclass(frozen=True, slots=True)
class Layout:
    """Planes of KV that are kept for all tokens, and what is there beside them.

    ``anchored``: some layers cannot be rewound, so that reuse begins at checkpoints. ``reach`` is
    how many of the last tokens their windows need, ``state_bytes`` what a checkpoint holds
    besides, ``fixed_bytes`` all that does not grow with the sequence.
    """

    planes: list[mlxlm.LayerShape] = field(default_factory=list)
    anchored: bool = False
    reach: int = 0
    state_bytes: int = 0
    fixed_bytes: int = 0

    @classmethod
    def of(cls, caches: list[Any]) -> Layout:
        """The layout of caches that hold at least one token."""
        return cls(
            planes=mlxlm.shapes(caches),
            anchored=not mlxlm.rewindable(caches),
            reach=mlxlm.reach(caches),
            state_bytes=mlxlm.freeze(caches).nbytes,
            fixed_bytes=mlxlm.fixed_bytes(caches),
        )

    @property
    def stride(self) -> int:
        """Tokens between two checkpoints where no message ends.

        So many that states take no more than the KV of all the tokens does.
        """
        token_bytes = sum(plane.nbytes for plane in self.planes)
        stride = STRIDE
        while stride < LONGEST_STRIDE and stride * token_bytes < self.state_bytes:
            stride *= 2
        return stride

    def marks(self, wanted: tuple[int, ...], start: int, last: int) -> tuple[int, ...]:
        """Where a prompt takes checkpoints after its first ``start`` tokens.

        At the positions that are ``wanted``, now and then between, and at ``last``.
        """
        if not self.anchored:
            return ()
        between = range(self.stride, last, self.stride)
        return tuple(sorted({m for m in (*wanted, *between, last) if start < m <= last}))
