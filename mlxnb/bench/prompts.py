"""Prompts that all who are measured are given alike."""

from __future__ import annotations

import random


class Prompts:
    """Draws token ids, none twice in a row of calls: no prompt begins like an earlier one.

    Parameters
    ----------
    vocabulary
        Ids are below it.
    """

    def __init__(self, vocabulary: int, seed: int = 0) -> None:
        self._vocabulary = vocabulary
        self._random = random.Random(seed)

    def draw(self, length: int) -> list[int]:
        """So many ids."""
        return [self._random.randrange(self._vocabulary) for _ in range(length)]
