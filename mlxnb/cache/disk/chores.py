"""What is done to the files now and then."""

from __future__ import annotations

import time

from mlxnb.cache.disk.keeper import Keeper
from mlxnb.cache.disk.limits import Limits
from mlxnb.cache.disk.pause import Pause
from mlxnb.cache.disk.removal import Remover
from mlxnb.cache.disk.rewriting import Rewriter

SWEEP_S = 3600.0
"""Seconds between two looks for files that were left behind."""


class Chores:
    """Saves, sweeps and merges when it is time to. One thread at a time."""

    def __init__(
        self,
        keeper: Keeper,
        remover: Remover,
        rewriter: Rewriter,
        pause: Pause,
        limits: Limits,
    ) -> None:
        self._keeper, self._remover, self._rewriter = keeper, remover, rewriter
        self._pause, self._limits = pause, limits
        self._untidy = True
        self._next = self._sweep_at = time.monotonic()

    @property
    def wait(self) -> float:
        """Seconds until there is something to do."""
        return self._next - time.monotonic()

    def stir(self) -> None:
        """Something was written: there may be shards to merge."""
        self._untidy = True

    def do(self) -> None:
        """Do what is due, if anything is; of shards, one group is merged at a time."""
        if self.wait > 0:
            return
        self._next = time.monotonic() + self._limits.tidy_s
        if self._pause.active:
            return
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + SWEEP_S
            self._remover.sweep(self._limits.orphan_s)
            self._keeper.shrink()
        self._keeper.save()
        if self._remover.unclean:
            self._remover.scrub()
        if self._untidy:
            self._untidy = self._rewriter.tidy()
