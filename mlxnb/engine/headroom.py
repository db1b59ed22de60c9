"""Chunks of a prompt that fit what is left below a limit, beyond which the process would end."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from mlxnb.cache.room import Room, Tight
from mlxnb.engine.runtime import LARGEST, SMALLEST, Runtime


class Headroom:
    """Sizes a model's next chunk.

    Parameters
    ----------
    left
        Bytes below the limit now; None: there is no such limit.
    """

    def __init__(self, left: Callable[[], int | None]) -> None:
        self._left = left

    def size(self, runtime: Runtime, context: int, room: Room) -> None:
        """Set how many tokens the next chunk may have behind ``context`` others.

        It shrinks before anything is given up for it; where not even the smallest one fits, KV
        that nobody uses goes.

        Raises
        ------
        Tight
            Not even that helps.
        """
        runtime.rate.most = LARGEST
        activations = runtime.activations
        left = self._left() if activations is not None else None
        if activations is None or left is None:
            return
        needed = activations.nbytes(SMALLEST, context)
        if left < needed and room.spare(needed - left):
            mx.clear_cache()
            left = self._left() or 0
        runtime.rate.most = activations.fitting(left, context, LARGEST)
        if runtime.rate.most < SMALLEST:
            raise Tight(
                f"a chunk of {SMALLEST} tokens takes {needed:,} bytes for a moment, and {left:,} "
                "are left"
            )
