"""What the system has left, and what KV may hold because of it.

While others leave enough, KV may hold its budget. When less than a reserve is left, MLX's free
pool goes first, then KV that nobody uses, the least recently used first; the limit stays where it
is then, so that new requests wait until others have ended, and are refused if nothing runs. What
runs keeps what it has. The limit comes back slowly: memory that has just become free is often
wanted again at once.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from mlxnb.cache.room import Room, Tight
from mlxnb.errors import BudgetExceeded, ShortOfMemory
from mlxnb.models.memory import trim

log = logging.getLogger(__name__)

PLENTY = 2**60
EVERY_S = 1.0
"""Seconds between two looks, at the least."""
RECOVERY_S = 30.0
"""Seconds in which the limit comes back from nothing to the whole budget."""
ADVICE = "close other programs, unload a model, or try again later"

Ease = Callable[[Tight, bool], bool]
"""`Pressure.ease`."""


class Pressure:
    """Looks at the system, and sets a room's limit.

    Parameters
    ----------
    room
        Where KV is now; asked each time.
    available
        Bytes that the system has left.
    reserve
        Bytes of them that are left to others.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        room: Callable[[], Room],
        available: Callable[[], int],
        reserve: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.available = _guarded(available)
        self.reserve = reserve
        self._room, self._clock = room, clock
        self._looked = -math.inf

    # --- the engine's thread ------------------------------------------------------------------

    def look(self) -> None:
        """Set the limit and hold it, unless that was done less than a second ago."""
        now = self._clock()
        elapsed = now - self._looked
        if elapsed < EVERY_S:
            return
        self._looked = now
        room = self._room()
        spare = self._spare(room.limit - room.nbytes)
        with room.lock:
            room.press(self._target(room, spare, min(elapsed, RECOVERY_S)))
            if room.nbytes > room.limit:
                room.shrink()
                mx.clear_cache()
                trim()

    def _spare(self, wanted: int) -> int:
        """Bytes beyond the reserve; if they are fewer than wanted, what is free is given back."""
        spare = self.spare_bytes
        if spare >= wanted:
            return spare
        mx.clear_cache()
        trim()
        return self.spare_bytes

    @property
    def spare_bytes(self) -> int:
        """Bytes that the system has beyond the reserve; below 0, what is missing of that."""
        return self.available() - self.reserve

    def make_room(self, nbytes: int) -> int:
        """Give up KV that nobody uses, if so many bytes can be had then; the spare bytes now."""
        missing = nbytes - self._spare(nbytes)
        if missing > 0 and self._room().spare(missing):
            mx.clear_cache()
            trim()
        return self.spare_bytes

    def _target(self, room: Room, spare: int, elapsed: float) -> int:
        """Bytes that KV may hold: at once if they are fewer than before, slowly if more."""
        target, limit = room.nbytes + spare, room.limit
        if target <= limit:
            return target
        clearly = spare > self.reserve // 4
        return min(target, limit + int(clearly * room.budget * elapsed / RECOVERY_S))

    def ease(self, error: Tight, running: bool) -> bool:
        """Raise the limit for a request that cannot wait for it to come back.

        At once as far as the system has memory. For one that is ``running``, or was before it
        made way, three quarters of the reserve are there too: its KV grows a little at a time.

        Returns
        -------
        bool
            Whether what was missing is there now.
        """
        if error.missing is None:
            return False
        room = self._room()
        wanted = room.limit + error.missing
        more = running * (self.reserve * 3 // 4)
        spare = self._spare(wanted - room.nbytes - more) + more
        with room.lock:
            if wanted > min(room.budget, room.nbytes + spare):
                return False
            room.press(wanted)
            return True

    # --- any thread ---------------------------------------------------------------------------

    def check(self, need: int) -> None:
        """Refuse what could not begin now if all else were given up.

        Raises
        ------
        ShortOfMemory
            ``need`` bytes of KV are within the budget and more than the system has.
        """
        room = self._room()
        if need > room.budget or self._has(need):
            return
        trim()
        if not self._has(need):
            spare = self.spare_bytes
            raise ShortOfMemory(
                f"this request's KV takes {need:,} bytes, and the system has {max(0, spare):,} to "
                f"spare; {ADVICE}"
            )

    def _has(self, need: int) -> bool:
        """Whether so much KV could be held, if all that is held were given up."""
        return self._room().nbytes + self.spare_bytes + int(mx.get_cache_memory()) >= need


def _guarded(available: Callable[[], int]) -> Callable[[], int]:
    """A system that cannot say what it has left is no reason to end the engine's thread."""

    def ask() -> int:
        try:
            return available()
        except Exception as error:
            log.warning("the system does not say what memory it has left: %s", error)
            return PLENTY

    return ask


def never(error: Tight, running: bool) -> bool:
    """`Pressure.ease` where nobody looks at the system."""
    return False


def insist(ease: Ease, running: bool, act: Callable[..., None], *given: Any) -> None:
    """Do something that takes room, as long as more of it can be had.

    Raises
    ------
    Tight
        No more can.
    """
    while True:
        try:
            return act(*given)
        except Tight as error:
            if not ease(error, running):
                raise


def refusal(told: str, advice: str, error: Exception) -> BudgetExceeded:
    """The error that a request ends with for which there is no room."""
    if isinstance(error, Tight):
        return ShortOfMemory(f"{told}{error}; {ADVICE}")
    return BudgetExceeded(f"{told}{error}; {advice}")
